"""
The garbage collector stands still while records are made, not while they are read.
"""

import gc
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka.record import MemoryRecords
from kafka.serializer import Deserializer

from safeconsumer._kafka.decoding.decoders import choose
from tests.unit.kafka.decoding.batches import Frame, Row, written
from tests.unit.kafka.decoding.compare import TP


class Noting(Deserializer):  # type: ignore[misc]  # upstream is untyped
    """
    Notes whether the collector runs, and raises when it is told to.
    """

    def __init__(self, error: type[BaseException] | None = None) -> None:
        self.error = error
        self.enabled: list[bool] = []

    def deserialize(self, topic: str, headers: object, data: bytes) -> bytes:
        del topic, headers
        self.enabled.append(gc.isenabled())
        if self.error is not None:
            raise self.error
        return data


@pytest.fixture
def collector() -> Iterator[Callable[[bool], None]]:
    """
    Switch the collector on or off; it is as before afterwards.
    """
    before = gc.isenabled()
    yield lambda on: gc.enable() if on else gc.disable()
    (gc.enable if before else gc.disable)()


def _part(noting: Deserializer, magic: int = 2) -> Any:  # noqa: ANN401 - our subclass
    data, _ = written(0, [Row(value=b"v")] * 3, Frame(magic=magic))
    return choose("compiled").records(
        0, TP, MemoryRecords(data), value_deserializer=noting
    )


@pytest.mark.parametrize("magic", [2, 1])
@pytest.mark.parametrize("on", [True, False])
def test_it_is_as_it_was(
    collector: Callable[[bool], None],
    on: bool,  # noqa: FBT001 - pytest's way
    magic: int,
) -> None:
    """
    For the application's code, and afterwards.
    """
    collector(on)
    noting = Noting()
    assert len(_part(noting, magic).take()) == 3
    assert noting.enabled == [on] * 3
    assert gc.isenabled() == on


@pytest.mark.parametrize("error", [ValueError, StopIteration, KeyboardInterrupt])
@pytest.mark.parametrize("on", [True, False])
def test_after_an_error_too(
    collector: Callable[[bool], None],
    on: bool,  # noqa: FBT001 - pytest's way
    error: type[BaseException],
) -> None:
    """
    Ctrl-C in the middle of a deserializer included.
    """
    collector(on)
    expected = RuntimeError if error is StopIteration else error
    with pytest.raises(expected):
        _part(Noting(error)).take()
    assert gc.isenabled() == on


def test_nothing_more_comes_after_ctrl_c() -> None:
    """
    As from upstream's generator: what was taken and lost is fetched again.
    """
    noting = Noting()
    part = _part(noting)
    assert len(part.take(1)) == 1
    noting.error = KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        part.take()
    noting.error = None
    assert part.take() == []
    assert part.next_fetch_offset == 1


class Node:
    """
    Refers to itself, so that only the collector gets rid of it.
    """

    def __init__(self) -> None:
        self.myself = self


def _collected(limit: int = 1_000_000) -> bool:
    """
    Make garbage until some of it is collected.
    """
    first = weakref.ref(Node())
    for _ in range(limit):
        if first() is None:
            return True
        Node()
    return False


def test_garbage_of_others_is_collected_while_a_deserializer_waits(
    collector: Callable[[bool], None],
) -> None:
    """
    One that asks a schema registry, say: other threads' memory must not grow with it.
    """
    collector(True)  # noqa: FBT003 - as the others call it
    waiting = Waiting()

    class Slow(Deserializer):  # type: ignore[misc]  # upstream is untyped
        def deserialize(self, topic: str, headers: object, data: bytes) -> bytes:
            del topic, headers
            waiting()
            return data

    reader = threading.Thread(target=_part(Slow()).take)
    reader.start()
    try:
        assert waiting.inside.wait(20)
        assert _collected()
    finally:
        waiting.go_on.set()
        reader.join(20)


class Waiting:
    """
    Stands still until it is let go.
    """

    def __init__(self) -> None:
        self.inside, self.go_on = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.inside.set()
        assert self.go_on.wait(20)


def _enabled_in_child() -> bool:
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        os.write(writes, b"%d" % gc.isenabled())
        os._exit(0)
    os.waitpid(child, 0)
    answer = os.read(reads, 1)
    os.close(reads)
    os.close(writes)
    return answer == b"1"


@pytest.mark.parametrize("codec", [0, 1, 3, 4])
def test_an_answer_is_not_kept_by_what_has_read_it(codec: int) -> None:
    """
    In the middle of a batch only its uncompressed bytes stay, after a drain nothing.
    """
    data = bytes(written(0, [Row(value=b"v")] * 3, Frame(codec=codec))[0])
    before = sys.getrefcount(data)
    part = choose("compiled").records(0, TP, MemoryRecords(data))
    part.take(1)
    assert codec == 0 or len(part._batch._buffer) == 0
    part.drain()
    assert sys.getrefcount(data) == before
    assert part._batch is None
    assert part.take() == []


def test_headers_count_as_the_objects_that_they_are() -> None:
    """
    Those of a poll are kept for a while, if they are small.
    """
    data, _ = written(0, [Row(0, None, None, (("", b""),) * 1000)] * 3, Frame())
    part = choose("compiled").records(0, TP, MemoryRecords(data))
    part.take()
    assert part.bytes_taken > 3 * 1000 * 200


def test_a_stop_iteration_of_a_deserializer_shows_where_it_comes_from(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """
    In the log and in the error, as with kafka-python.
    """
    stop = StopIteration("next() of mine")
    with pytest.raises(RuntimeError) as caught:
        _part(Noting(stop)).take()
    assert caught.value.__context__ is stop
    (logged,) = caplog.records
    assert (logged.name, logged.exc_info[1]) == ("kafka.consumer.fetcher", stop)


def test_a_deserializer_that_has_the_rest_thrown_away() -> None:
    """
    It closes the consumer, say: the record comes, and nothing after it.
    """

    class Closing(Deserializer):  # type: ignore[misc]  # upstream is untyped
        def deserialize(self, topic: str, headers: object, data: bytes) -> bytes:
            del topic, headers
            part.drain()
            return data

    part = _part(Closing())
    assert [record.offset for record in part.take()] == [0]
    assert part.take() == []
    assert part.next_fetch_offset == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore:This process.*multi-threaded")  # it is meant to be
@pytest.mark.parametrize("on", [True, False])
def test_a_child_forked_meanwhile_has_it_as_it_was(
    collector: Callable[[bool], None],
    on: bool,  # noqa: FBT001 - pytest's way
) -> None:
    """
    The thread that would switch it on again did not come along.
    """
    collector(on)
    waiting = Waiting()
    part = _part(None)
    read_on = part._read_on

    def read_on_slowly(*args: object) -> object:
        waiting()
        return read_on(*args)

    part._read_on = read_on_slowly
    reader = threading.Thread(target=part.take)
    reader.start()
    try:
        assert waiting.inside.wait(20)
        assert not gc.isenabled()
        assert _enabled_in_child() == on
    finally:
        waiting.go_on.set()
        reader.join(20)
    assert gc.isenabled() == on
