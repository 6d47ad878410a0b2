"""Tests how the program handles unforeseen errors and failing outputs."""

import io
import os
import sys
import threading
from email.message import Message
from types import SimpleNamespace

import click
import pytest

from safeconsumer.cli import main as module
from safeconsumer.cli.errors import Status
from safeconsumer.cli.output import Output


@pytest.fixture
def program(monkeypatch):
    """``program(command)`` runs the program with a function as its command."""

    def run(command):
        commands = SimpleNamespace(safeconsumer=command)
        imported = module.importlib.import_module
        monkeypatch.setattr(
            module.importlib,
            "import_module",
            lambda name: commands if name.endswith(".commands") else imported(name),
        )
        module.main()

    return run


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (KeyError("who knows"), "KeyError: 'who knows': this error is a defect"),
        (ValueError("two\nlines"), "ValueError: two lines: this error is a defect"),
        (ValueError(), "ValueError: this error is a defect"),
        (OSError(28, "full"), "this system refuses: [Errno 28] full\n"),
    ],
    ids=["key", "two lines", "no text", "system"],
)
@pytest.mark.parametrize("has_traceback", [False, True])
def test_unforeseen_error_prints_one_line_and_has_its_own_status(  # noqa: PLR0913, PLR0917 - fixtures
    program, monkeypatch, capsys, error, line, has_traceback
):
    """The status is not 1, which would mean a bad outcome."""
    monkeypatch.setenv(module.TRACEBACK, "1" if has_traceback else "")
    with pytest.raises(SystemExit) as end:
        program(raising(error))
    assert end.value.code == Status.BROKEN
    text = capsys.readouterr().err
    assert text.startswith("Traceback (most recent call last):\n") is has_traceback
    last = text[text.index("safeconsumer: ") :]
    assert last.startswith(f"safeconsumer: {line}")
    assert last.count("\n") == 1


def raising(error):
    def command():
        raise error

    return command


def test_defects_are_reported_at_the_address_in_the_package_metadata(monkeypatch):
    """The package metadata of a checkout has no address."""
    metadata = Message()
    metadata["Project-URL"] = "Homepage, https://example.com/x"
    metadata["Project-URL"] = "Issues, https://example.com/x/issues"
    monkeypatch.setattr("importlib.metadata.metadata", lambda _: metadata)
    assert module._address() == " at https://example.com/x/issues"
    del metadata["Project-URL"]
    assert module._address() == ""


@pytest.mark.parametrize("kind", ["table", "json"])
def test_closed_pipe_is_noticed_on_an_unbuffered_output(monkeypatch, kind):
    read, write = os.pipe()
    stream = io.TextIOWrapper(os.fdopen(write, "wb", 0), write_through=True)
    monkeypatch.setattr(sys, "stdout", stream)

    def read_a_little():
        os.read(read, 10)
        os.close(read)

    reader = threading.Thread(target=read_a_little)
    reader.start()
    lines = ["a line of a history"] * 20_000
    output = Output(kind)
    with pytest.raises(BrokenPipeError):
        output.document(lines) if output.is_json else output.lines(lines)
    reader.join()
    stream.detach().close()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_characters_outside_the_output_encoding_are_escaped(
    program, monkeypatch, name, encoding
):
    shown = io.BytesIO()
    monkeypatch.setattr(
        sys, name, io.TextIOWrapper(shown, encoding, write_through=True)
    )

    def command():
        click.echo("db \u65e5\u672c", err=name == "stderr")
        getattr(sys, name).write("cafe \u65e5\n")

    program(command)
    first, second = shown.getvalue().decode("utf-8").splitlines()
    # click treats an ASCII stream as UTF-8.
    assert first == (r"db \u65e5\u672c" if encoding != "ascii" else "db \u65e5\u672c")
    assert second.endswith(r"\u65e5")
