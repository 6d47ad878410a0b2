"""Our parser returns the same responses as upstream's, however the bytes are split."""

import gc
import itertools
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
    requests_of,
    stock,
    token,
    written,
)

SMALL = (api_versions(1), heartbeat(2), fetch(3, b"abc", b""), heartbeat(4, error=27))
LARGE = (
    heartbeat(1),
    fetch(2, b"x" * 100_000, b"y" * 30_000),
    heartbeat(3),
    fetch(4, bytes(range(256)) * 600),
)
BAD = {
    "wrong correlation id": (heartbeat(1), heartbeat(3)),
    "a negative length": (heartbeat(1), Exchange(heartbeat(2).request, b"\xff" * 9)),
    "too long": (heartbeat(1), fetch(2, bytes(3000))),
    "truncated inside": (
        Exchange(fetch(1).request, b"\x00\x00\x00\x0c\x00\x00\x00\x01" + b"\x00" * 8),
    ),
    "empty": (Exchange(heartbeat(1).request, bytes(4)),),
    "not requested": (Exchange(None, heartbeat(1).answer),),
    "truncated header": (Exchange(heartbeat(1).request, b"\x00\x00\x00\x02\x00\x00"),),
}


def _cut(data, places):
    edges = [0, *sorted(places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def _alike(exchanges, chunks):
    asked = requests_of(exchanges)
    expected = handed(stock(asked), chunks)
    assert handed(ours(asked), chunks) == expected
    assert received(ours(asked), chunks) == expected
    return expected


def test_small_responses_are_read_wherever_they_are_split():
    """Tried splits: at each single point, between all responses, and after every byte."""
    data = written(SMALL)
    for place in range(len(data) + 1):
        _alike(SMALL, _cut(data, [place]))
    _alike(SMALL, [one.answer for one in SMALL])
    got = _alike(SMALL, [bytes([byte]) for byte in data])
    assert [number for number, _ in got] == [1, 2, 3, 4]


@settings(max_examples=30)
@given(st.lists(st.integers(0, len(written(LARGE))), max_size=12))
def test_large_responses_are_read_wherever_they_are_split(places):
    """A large response does not fit into the scratch memory and has its own memory."""
    _alike(LARGE, _cut(written(LARGE), places))


@pytest.mark.parametrize("exchanges", BAD.values(), ids=BAD)
@settings(max_examples=20)
@given(data=st.data())
def test_invalid_response_raises_upstreams_error_wherever_it_is_split(exchanges, data):
    whole = written(exchanges)
    places = data.draw(st.lists(st.integers(0, len(whole)), max_size=3))
    chunks = _cut(whole, places)
    asked = requests_of(exchanges)
    expected = handed(stock(asked, receive_message_max_bytes=2000), chunks)
    assert isinstance(expected[-1][0], type)  # upstream raises an error
    assert handed(ours(asked, receive_message_max_bytes=2000), chunks) == expected
    # Upstream loses the responses that precede the error in the same chunk. Our parser
    # returns those responses.
    *before, error = received(ours(asked, receive_message_max_bytes=2000), chunks)
    assert error == expected[-1]
    single = [bytes([byte]) for byte in whole]
    *complete, _ = handed(stock(asked, receive_message_max_bytes=2000), single)
    assert before in (expected[:-1], complete)


def test_token_stays_unchanged_when_more_responses_follow():
    """A token is a complete response without a header."""
    first, second = token(b"a" * 100_000), token(b"b" * 100_000)
    asked = [first.request, second.request]
    got = received(ours(asked), [first.answer + second.answer])
    assert [len(str(kept)) for _, kept in got] == [100_003, 100_003]
    assert got == handed(stock(asked), [first.answer, second.answer])


def test_response_stays_unchanged_when_its_memory_is_reused():
    parser = ours(requests_of(LARGE))
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
    expected = handed(stock(requests_of(LARGE)), [one.answer for one in LARGE])
    assert [(number, str(response)) for number, response in responses] == expected


def test_memory_of_a_large_response_is_freed():
    """The parser keeps only its scratch memory."""
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
