"""Text that a terminal cannot show is escaped, and hides nothing."""

import io
import sys
from types import SimpleNamespace

import click
import pytest

from safeconsumer.cli import main as module


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_reason_in_chinese_is_escaped(monkeypatch, name, encoding):
    """Whatever the command: one place prepares the streams of all."""
    shown = io.BytesIO()
    monkeypatch.setattr(
        sys, name, io.TextIOWrapper(shown, encoding, write_through=True)
    )

    def command():
        click.echo("db \u65e5\u672c", err=name == "stderr")
        getattr(sys, name).write("cafe \u65e5\n")

    commands = SimpleNamespace(safeconsumer=command)
    monkeypatch.setattr(module.importlib, "import_module", lambda _: commands)
    module.main()
    first, second = shown.getvalue().decode("utf-8").splitlines()
    # Where the streams are ASCII, click takes them to be UTF-8.
    assert first == (r"db \u65e5\u672c" if encoding != "ascii" else "db \u65e5\u672c")
    assert second.endswith(r"\u65e5")
