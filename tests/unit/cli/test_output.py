"""What is printed, and to whom."""

import io
import os
import sys
import threading

import pytest

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
