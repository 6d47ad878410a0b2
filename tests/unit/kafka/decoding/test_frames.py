"""Whatever pieces the bytes come in, the answers are those of upstream's parser."""

import gc
import itertools
import logging
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safeconsumer._kafka.decoding import frames
from tests.unit.kafka.decoding.answers import (
    Exchange,
    api_versions,
    fetch,
    handed,
    heartbeat,
    ours,
    received,
    stock,
    token,
)

SMALL = (api_versions(1), heartbeat(2), fetch(3, b"abc", b""), heartbeat(4, error=27))
LARGE = (
    heartbeat(1),
    fetch(2, b"x" * 100_000, b"y" * 30_000),
    heartbeat(3),
    fetch(4, bytes(range(256)) * 600),
)
BAD = {
    "another number": (heartbeat(1), heartbeat(3)),
    "a negative length": (heartbeat(1), Exchange(heartbeat(2).request, b"\xff" * 9)),
    "too long": (heartbeat(1), fetch(2, bytes(3000))),
    "cut off inside": (
        Exchange(fetch(1).request, b"\x00\x00\x00\x0c\x00\x00\x00\x01" + b"\x00" * 8),
    ),
    "empty": (Exchange(heartbeat(1).request, bytes(4)),),
    "not asked for": (Exchange(None, heartbeat(1).answer),),
    "its header cut off": (
        Exchange(heartbeat(1).request, b"\x00\x00\x00\x02\x00\x00"),
    ),
}


def _requests(exchanges):
    return [one.request for one in exchanges if one.request is not None]


def _written(exchanges):
    return b"".join(one.answer for one in exchanges)


def _cut(data, places):
    edges = [0, *sorted(places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def _agree(exchanges, chunks, **config):
    asked = _requests(exchanges)
    expected = handed(stock(asked, **config), chunks)
    assert handed(ours(asked, **config), chunks) == expected
    assert received(ours(asked, **config), chunks) == expected


def test_whole_answers():
    """One by one, and all at once."""
    for exchanges in (SMALL, LARGE):
        _agree(exchanges, [one.answer for one in exchanges])
        _agree(exchanges, [_written(exchanges)])
    got = received(ours(_requests(SMALL)), [_written(SMALL)])
    assert [number for number, _ in got] == [1, 2, 3, 4]


def test_cut_anywhere():
    """At each boundary once, and byte by byte."""
    data = _written(SMALL)
    for place in range(len(data) + 1):
        _agree(SMALL, _cut(data, [place]))
    _agree(SMALL, [bytes([byte]) for byte in data])


@settings(max_examples=30)
@given(st.lists(st.integers(0, len(_written(LARGE))), max_size=12))
def test_large_answers_cut_anywhere(places):
    """Larger than the scratch, so that they are received into their own memory."""
    _agree(LARGE, _cut(_written(LARGE), places))


@pytest.mark.parametrize("exchanges", BAD.values(), ids=BAD)
@settings(max_examples=20)
@given(data=st.data())
def test_what_upstream_refuses(exchanges, data):
    """The same error, wherever the bytes are cut."""
    written = _written(exchanges)
    places = data.draw(st.lists(st.integers(0, len(written)), max_size=3))
    chunks = _cut(written, places)
    asked = _requests(exchanges)
    expected = handed(stock(asked, receive_message_max_bytes=2000), chunks)
    assert isinstance(expected[-1][0], type)  # an error, and not nothing
    assert handed(ours(asked, receive_message_max_bytes=2000), chunks) == expected
    # What came before it in one piece upstream loses; where it is received, it is
    # handed on when it is complete.
    *before, error = received(ours(asked, receive_message_max_bytes=2000), chunks)
    assert error == expected[-1]
    single = [bytes([byte]) for byte in written]
    *complete, _ = handed(stock(asked, receive_message_max_bytes=2000), single)
    assert before in (expected[:-1], complete)


def test_a_token_is_kept():
    """It is the whole of an answer without a header, and stays when others follow."""
    first, second = token(b"a" * 100_000), token(b"b" * 100_000)
    asked = [first.request, second.request]
    got = received(ours(asked), [first.answer + second.answer])
    assert [len(str(kept)) for _, kept in got] == [100_003, 100_003]
    assert got == handed(stock(asked), [first.answer, second.answer])


def test_what_was_answered_does_not_change():
    """Nothing of an answer stands in memory that is received into again."""
    parser = ours(_requests(LARGE))
    responses = []
    for one in LARGE:
        left = memoryview(one.answer)
        while left:
            room = parser.room()
            count = min(len(room), len(left))
            room[:count], rest = left[:count], left[count:]
            responses += parser.receive_bytes(room[:count])
            room[:] = b"?" * len(room) if parser._frame is None else room[:]
            left = rest
    expected = handed(stock(_requests(LARGE)), [one.answer for one in LARGE])
    assert [(number, str(response)) for number, response in responses] == expected


def test_the_memory_of_an_answer_is_given_back():
    """What is kept between answers is the scratch, however large an answer was."""
    large = fetch(1, bytes(3_000_000))
    parser = ours([large.request])
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        assert len(received(parser, [large.answer[:100_000]])) == 0
        assert len(parser.room()) > 2_800_000
        parser.room()[:] = large.answer[100_000:]
        assert len(parser.receive_bytes(parser.room())) == 1
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 100_000
    assert len(parser.room()) == frames._SCRATCH


def test_bytes_are_logged_as_upstream_logs_them(caplog):
    """For those who look for a fault at the wire."""
    caplog.set_level(logging.DEBUG, logger="kafka.protocol.parser")
    lines = []
    for parser in (stock([SMALL[0].request]), ours([SMALL[0].request])):
        caplog.clear()
        parser.receive_bytes(SMALL[0].answer)
        lines.append(caplog.messages)
    assert lines[0] == lines[1]
    assert "Recv: b'" in lines[1][0]
