"""
The dead letters: posted one by one, acknowledged before their record is complete.
"""

import contextlib
import heapq
import itertools
import queue
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from attrs import frozen

from safeconsumer.errors import WorkerSettingError
from safeconsumer.events import worker as worker_events
from safeconsumer.worker.calls import is_async, refuse_coroutine
from safeconsumer.worker.outcomes import Letter
from safeconsumer.worker.retry import Retry
from safeconsumer.worker.settings import DeadLetter, check_callable


@frozen(kw_only=True)
class Failure:
    """
    Why a record is a dead letter, for a callable that takes them.

    Attributes:
        error: what the handler raised last.
        attempts: how often it was called.
    """

    error: BaseException
    attempts: int


Sink: TypeAlias = Callable[[Any, Failure], object]
"""
Takes a record and its failure. Returning means acknowledged; a future that it returns
(anything with ``get``, or ``result``, but a mapping) is waited for.
"""

# How long an answer of a callable that returned a future is waited for.
_SINK_SECONDS = 30.0

Acknowledged: TypeAlias = Callable[[Letter], None]


class DeadLetters:
    """
    Posts letters in a daemon thread of its own, where it may wait.

    Args:
        sink: takes the record.
        timeout: seconds to wait for an acknowledgement.
        retry: its waits are used between attempts; their number is not limited.
    """

    def __init__(
        self, sink: Sink, timeout: float, retry: Retry, emit: Callable[..., None]
    ) -> None:
        self._sink = sink
        self._timeout = timeout
        self._retry = retry
        self._emit = emit
        self._inbox: queue.SimpleQueue[Letter | None] = queue.SimpleQueue()
        self._waiting: list[tuple[float, int, int, Letter]] = []
        self._numbers = itertools.count()
        self.then: Acknowledged = _nothing
        self._thread = threading.Thread(
            target=self._work, name="safeconsumer-dead-letters", daemon=True
        )

    def post(self, letter: Letter) -> None:
        """
        Take a letter without waiting. Any thread.
        """
        if not self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # another letter was quicker
                self._thread.start()
        self._inbox.put(letter)

    def stop(self) -> None:
        """
        Let the thread end after what it is at; letters not posted are not complete.
        """
        self._inbox.put(None)

    def _work(self) -> None:
        while True:
            try:
                letter = self._inbox.get(timeout=self._until_next())
            except queue.Empty:
                _, _, tries, letter = heapq.heappop(self._waiting)
                self._try(letter, tries)
                continue
            if letter is None:
                return
            self._try(letter, 1)

    def _until_next(self) -> float | None:
        if not self._waiting:
            return None
        return max(0.0, self._waiting[0][0] - time.monotonic())

    def _try(self, letter: Letter, tries: int) -> None:
        if letter.lane.epoch.is_closed:
            return
        try:
            self._deliver(letter)
        except Exception as error:  # noqa: BLE001 - whatever the sink raises
            self._again(letter, tries, error)
        else:
            self.then(letter)

    def _deliver(self, letter: Letter) -> None:
        failure = Failure(error=letter.error, attempts=letter.attempt)
        answer = self._sink(letter.record, failure)
        refuse_coroutine(answer)
        if isinstance(answer, Mapping):  # it has a get(), and is no future
            return
        wait = getattr(answer, "get", None) or getattr(answer, "result", None)
        if callable(wait):
            wait(timeout=self._timeout)

    def _again(self, letter: Letter, tries: int, error: Exception) -> None:
        delay = max(0.01, self._retry.delay(tries, random.random()))  # noqa: S311 - jitter
        due = time.monotonic() + delay
        heapq.heappush(self._waiting, (due, next(self._numbers), tries + 1, letter))
        tp = letter.lane.epoch.tp
        self._emit(
            worker_events.DeadLetterFailed,
            partition=f"{tp.topic}:{tp.partition}",
            offset=letter.record.offset,
            attempt=tries,
            delay=delay,
            error=repr(error),
        )


def sink_of(setting: DeadLetter) -> Sink:
    """
    Return what sends records to the topic, with headers that say what failed.
    """

    def send(record: Any, failure: Failure) -> object:  # noqa: ANN401 - upstream's record
        cause = failure.error
        told = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "attempts": failure.attempts,
            "exception": f"{type(cause).__module__}.{type(cause).__qualname__}",
            "message": str(cause),
        }
        headers = [
            *(record.headers or ()),
            *(
                (f"dead-letter-{name}", str(value).encode("utf-8", "replace"))
                for name, value in told.items()
            ),
        ]
        return setting.producer.send(
            setting.topic, key=record.key, value=record.value, headers=headers
        )

    return send


def letters_of(
    dead_letter: DeadLetter | Sink | None, retry: Retry, emit: Callable[..., None]
) -> DeadLetters | None:
    """
    Return what takes dead letters; None if nothing does.

    Raises:
        WorkerSettingError: it cannot be called, or needs an event loop.
    """
    if dead_letter is None:
        return None
    if isinstance(dead_letter, DeadLetter):
        return DeadLetters(sink_of(dead_letter), dead_letter.timeout, retry, emit)
    check_callable(dead_letter, "dead_letter")
    if is_async(dead_letter):
        message = (
            f"dead_letter is called in a thread, and {dead_letter!r} is a coroutine "
            f"function: give a plain one, which may return a future"
        )
        raise WorkerSettingError(message)
    return DeadLetters(dead_letter, _SINK_SECONDS, retry, emit)


def _nothing(_letter: Letter) -> None:
    """
    Do nothing.
    """
