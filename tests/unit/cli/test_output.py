"""What is printed, and to whom: readers who go, terminals that lack letters."""

import io
import os
import sys
import threading
from types import SimpleNamespace

import click
import pytest

from safeconsumer.cli import main as module
from safeconsumer.cli.output import Output


@pytest.mark.parametrize("kind", ["table", "json"])
def test_a_reader_who_has_gone_is_noticed_where_nothing_is_buffered(monkeypatch, kind):
    """`history | head` with PYTHONUNBUFFERED ended with 0: it had been cut."""
    read, write = os.pipe()
    stream = io.TextIOWrapper(os.fdopen(write, "wb", 0), write_through=True)
    monkeypatch.setattr(sys, "stdout", stream)

    def look():
        os.read(read, 10)
        os.close(read)

    reader = threading.Thread(target=look)
    reader.start()
    lines = ["a line of a history"] * 20_000
    output = Output(kind)
    with pytest.raises(BrokenPipeError):
        output.document(lines) if output.is_json else output.lines(lines)
    reader.join()
    stream.detach().close()


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
