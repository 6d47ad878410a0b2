"""Tests hostile text in patterns, in names and in terminal output."""

import pytest
from click.testing import CliRunner

from safeconsumer.cli.commands import safeconsumer
from safeconsumer.errors import ScopeSyntaxError
from safeconsumer.group import patterns
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.explain import printable
from tests.harness.audit.journals import MemberJournal
from tests.harness.listing import short

CLEAR = "\x1b[2J"


@pytest.mark.parametrize("text", ["re:\udcff", "re:a\ud800b"])
def test_pattern_that_is_not_unicode_is_refused(text):
    """A pattern made from bytes that are not UTF-8 could not be encoded anywhere."""
    with pytest.raises(ScopeSyntaxError, match="Unicode"):
        scopes.parse(text)
    with pytest.raises(ScopeSyntaxError, match="Unicode"):
        patterns.parse(text)


def test_command_refuses_a_non_unicode_pattern_with_a_one_line_error():
    """The command exits with status 2 before it sends a request to a broker."""
    command = ["pause", "re:\udcff", "--group", "g", "--reason", "x"]
    ended = CliRunner().invoke(safeconsumer, [*command, "--bootstrap", "127.0.0.1:1"])
    assert (ended.exit_code, ended.output.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 漢", "plain é 漢"),
        (CLEAR, "\\x1b[2J"),
        ("a\r\nb\0", "a\\r\\nb\\x00"),
        ("\u202eevil", "\\u202eevil"),
        ("\udcff", "\\udcff"),
    ],
    ids=short,
)
def test_control_characters_are_shown_escaped(text, shown):
    """The characters include escapes, newlines, direction marks and surrogates."""
    assert printable(text) == shown


def test_journals_cannot_inject_terminal_sequences(tmp_path):
    """Names in journals and file names are escaped, so they cannot forge lines."""
    member = MemberJournal(f"m{CLEAR}\nclean: 9 journals").assigned("orders:0")
    member.pause("orders", owner=f"{CLEAR}eve\n").poll("orders:0", 0, 2)
    (tmp_path / "a.journal").write_text(member.text())
    (tmp_path / f"b{CLEAR}\n.journal").write_text("{")
    ended = CliRunner().invoke(safeconsumer, ["audit", str(tmp_path)], color=True)
    assert "\x1b" not in ended.output
    assert not any(line.startswith("clean") for line in ended.output.splitlines())
