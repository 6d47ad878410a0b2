"""Posts dead letters one by one; their records are complete once they are acknowledged."""

import contextlib
import heapq
import inspect
import itertools
import math
import queue
import random
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

from attrs import define, field, frozen
from kafka import KafkaProducer
from kafka.errors import (
    InvalidRecordError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
)

from safeconsumer.errors import WorkerSettingError
from safeconsumer.worker import events as worker_events
from safeconsumer.worker.handlers import (
    HandlersFailError,
    Reject,
    is_async,
    refuse_coroutine,
)
from safeconsumer.worker.letters_format import (
    NULL_HEADERS,
    NULL_VALUE,
    PREFIX,
    Headers,
    OneTrace,
)
from safeconsumer.worker.partition import Epoch
from safeconsumer.worker.queue import Letter
from safeconsumer.worker.retry import Retry
from safeconsumer.worker.settings import DeadLetter, check_callable, refuse_class
from safeconsumer.worker.tracebacks import cut, message, shown, stack


@frozen(kw_only=True)
class Failure:
    """
    Why a record is a dead letter; passed to the callable that takes dead letters.

    Attributes:
        error: the last exception of the handler.
        attempts: the number of attempts, as ``Context.attempt`` counts them.
        is_brief: whether the letter was too large before: write a shorter one.
        trace: headers that carry the trace of the last attempt, instead of the record's
            own headers of these names; None as a value means to leave that header out.
            It is empty without ``Worker(trace=...)``, and if that attempt is not
            sampled. The attempt's span is current while you are called, and its
            record's baggage the first time.
    """

    error: BaseException
    attempts: int
    is_brief: bool = False
    trace: Mapping[str, bytes | None] = field(factory=dict)


Sink: TypeAlias = Callable[[Any, Failure], object]
"""
It takes a record and its failure. If it returns, the letter is acknowledged; a future
that it returns is waited for until it ends: kafka-python's, a ``concurrent.futures``
one, or any object with ``get`` or ``result`` that is not a mapping, which holds up the
letters behind it. If it raises :class:`~safeconsumer.Reject`, the record can never be a
letter.
"""

# Seconds after which a future that has no result yet leads to an event.
_SINK_SECONDS = 30.0
# Seconds after which a blocking ``send`` leads to an event: a producer waits there for
# the metadata of an unknown topic, up to its ``max_block_ms``.
_SLOW_SECONDS = 5.0

Acknowledged: TypeAlias = Callable[[Letter], None]
Refused: TypeAlias = Callable[[Letter, BaseException], None]
Epochs: TypeAlias = Collection[Epoch] | None

# The module whose instrumentor wraps a producer's ``send``.
_TRACERS = "opentelemetry."
_TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)


@define(eq=False)
class _Post:
    """
    A letter on its way.

    Attributes:
        tries: how often it was given to the sink.
        is_brief: whether it must be shorter.
        is_waiting: whether it failed, and waits for another try.
        ticket: identifies the last try; the results of earlier ones are outdated.
        since: when it was last given to the sink.
    """

    letter: Letter
    tries: int = 0
    is_brief: bool = False
    is_waiting: bool = False
    ticket: object = field(factory=object)
    since: float = 0.0


# Tells the thread to forget the letters of ended ownerships.
_ENDED = object()


class DeadLetters:
    """
    Posts letters in its own daemon thread, which may wait for the sink.

    While it waits for an answer, the letters behind it are sent.

    Args:
        sink: the callable that takes the record.
        timeout: seconds without an acknowledgement after which an event says so.
        retry: gives the waits between tries; the number of tries is not limited.

    Attributes:
        then: called with a letter that was acknowledged.
        refused: called with a record that can never be a letter, and why.
        broken: called with the reason if no more letters can be posted.
        begin: called with each letter, so that somebody works on them: the thread, or
            the caller of :meth:`step`.
        draw: returns a random number below 1, for the waits.
    """

    def __init__(
        self,
        sink: Sink,
        timeout: float,
        retry: Retry,
        emit: Callable[..., None],
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._sink = sink
        self._clock = clock or time.monotonic
        self._timeout = min(timeout, threading.TIMEOUT_MAX)
        self._retry = retry
        self._emit = emit
        # Posts, answers, _ENDED, and None at the end.
        self._inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._posts: dict[int, _Post] = {}
        self._lock = threading.Lock()  # of _posts; nothing is called under it
        # These belong to the thread: letters not begun, those that wait for an answer,
        # when they will have waited too long, and those that wait for another try.
        self._new: deque[_Post] = deque()
        self._awaited: dict[_Post, float] = {}
        self._again_at: list[tuple[float, int, _Post]] = []
        self._numbers = itertools.count()
        self._closed = 0
        self._is_over = False
        self._sending: tuple[_Post, float] | None = None
        self._told_slow: object = None
        self.then: Acknowledged = _nothing
        self.refused: Refused = _nothing
        self.broken: Callable[[BaseException], None] = _nothing
        self.begin: Callable[[], None] = self._begin
        self.draw: Callable[[], float] = random.random
        self._thread = threading.Thread(
            target=self._work, name="safeconsumer-dead-letters", daemon=True
        )

    def post(self, letter: Letter) -> None:
        """Take a letter without waiting for anything. Any thread."""
        self.begin()
        post = _Post(letter)
        with self._lock:
            self._posts[id(letter)] = post
        self._inbox.put(post)

    def in_flight(self, epochs: Epochs = None) -> int:
        """
        Return how many letters are on their way: of all epochs or of these.

        A letter that failed and waits for another try does not count. Any thread.
        """
        if self._is_over:
            return 0
        with self._lock:
            return sum(
                not post.is_waiting
                and not (epoch := post.letter.lane.epoch).is_closed
                and (epochs is None or epoch in epochs)
                for post in self._posts.values()
            )

    def turn(self, closed: int) -> None:
        """
        Check the state of the letters, on the polling thread.

        Args:
            closed: how many ownerships have ended; their letters are forgotten.
        """
        if closed != self._closed:
            self._closed = closed
            self._inbox.put(_ENDED)
        self._tell_slow()

    def _tell_slow(self) -> None:
        # Emits one event if the sink has worked on one letter for long.
        sending = self._sending
        if sending is None or self._told_slow is sending:
            return
        post, began = sending
        seconds = self._clock() - began
        if seconds >= _SLOW_SECONDS:
            self._told_slow = sending
            self._tell_is_slow(post.letter, seconds)

    def stop(self) -> None:
        """
        Let the thread end after its current letter.

        Records of the others stay incomplete.
        """
        self._inbox.put(None)

    def step(self, wait: float = 0.0) -> float:
        """
        Work on what is due, where no thread does.

        Args:
            wait: real seconds to wait for an answer first, if there is none.

        Returns:
            The seconds until a letter is tried again; infinite if none is.
        """
        self._hear(wait)
        self._try_one_again()
        while self._new or not self._inbox.empty():
            if self._new:
                self._try(self._new.popleft())
            self._hear(0.0)
        again = self._again_at
        return again[0][0] - self._clock() if again else math.inf

    # ------------------------------------------------------------ its thread

    def _begin(self) -> None:
        if not self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # another letter was quicker
                self._thread.start()

    def _work(self) -> None:
        try:
            while not self._is_over:
                self._hear(self._until_next())
                self._try_one_again()
                if self._new and not self._is_over:
                    self._try(self._new.popleft())
        except BaseException as error:  # noqa: BLE001 - run() raises it
            wrong = HandlersFailError(f"dead letters have ended: {shown(error)}")
            wrong.__cause__ = error
            self.broken(wrong)
        finally:
            self._is_over = True

    def _hear(self, wait: float | None) -> None:
        # All answers first: a letter whose answer is here is not late.
        now = self._clock()
        with contextlib.suppress(queue.Empty):
            self._take(self._inbox.get(timeout=wait))
            for _ in range(self._inbox.qsize()):
                self._take(self._inbox.get_nowait())
        while not self._is_over and self._awaited:
            post, until = next(iter(self._awaited.items()))
            if until > now:
                return
            del self._awaited[post]
            if post.letter.lane.epoch.is_closed:
                self._forget(post)
                continue
            # If we sent it again, two might arrive: its producer gives it up, not we.
            self._tell_is_slow(post.letter, now - post.since)
            self._awaited[post] = now + self._timeout

    def _take(self, said: Any) -> None:  # noqa: ANN401 - any of what is put in
        if said is None:
            self._is_over = True
        elif said is _ENDED:
            self._forget_closed()
        elif isinstance(said, _Post):
            self._new.append(said)
        else:
            self._answered(*said)

    def _until_next(self) -> float | None:
        if self._new:
            return 0.0
        due = [next(iter(self._awaited.values()))] if self._awaited else []
        due += [self._again_at[0][0]] if self._again_at else []
        return max(0.0, min(due) - self._clock()) if due else None

    def _try_one_again(self) -> None:
        # One at a time, so that others get their turn however slow the sink is.
        if self._is_over or not self._again_at:
            return
        if self._again_at[0][0] <= self._clock():
            _, _, post = heapq.heappop(self._again_at)
            if id(post.letter) in self._posts:
                self._try(post)

    def _forget_closed(self) -> None:
        with self._lock:
            posts = [*self._posts.values()]
        for post in posts:
            if post.letter.lane.epoch.is_closed:
                self._forget(post)
        again = [one for one in self._again_at if id(one[2].letter) in self._posts]
        heapq.heapify(again)
        self._again_at = again

    def _try(self, post: _Post) -> None:
        letter = post.letter
        # If its partition was revoked, another member handles the record again; a
        # letter that was sent already is waited for, and completes the record.
        if letter.lane.epoch.revoked.is_set():
            self._forget(post)
            return
        ticket = post.ticket = object()
        self._awaited.pop(post, None)
        post.tries += 1
        post.is_waiting = False
        failure = Failure(
            error=letter.error,
            attempts=letter.attempt,
            is_brief=post.is_brief,
            trace={} if letter.trace is None else letter.trace.headers(),
        )
        post.since = self._clock()
        self._sending = (post, post.since)
        try:
            answer = self._send(post, failure)
            refuse_coroutine(answer)
            if not self._listen(post, ticket, answer):
                self._wait(post, answer)
                self._answered(post, ticket, None)
        except BaseException as error:  # noqa: BLE001 - whatever the sink raises
            self._failed(post, error)
        finally:
            self._sending = None

    def _send(self, post: _Post, failure: Failure) -> object:
        letter = post.letter
        if letter.trace is None:
            return self._sink(letter.record, failure)
        # Baggage that cannot be written makes every send in this context fail.
        attempt = letter.trace if post.tries == 1 else letter.trace.without_baggage()
        return attempt.run(self._sink, letter.record, failure)

    def _listen(self, post: _Post, ticket: object, answer: Any) -> bool:  # noqa: ANN401 - any
        # Returns False if it is not a future that calls back.
        say = self._inbox.put
        if callable(getattr(answer, "add_errback", None)):  # kafka-python's
            answer.add_callback(lambda _: say((post, ticket, None)))
            answer.add_errback(lambda error: say((post, ticket, error)))
        elif callable(getattr(answer, "add_done_callback", None)):
            answer.add_done_callback(lambda one: say((post, ticket, _error_of(one))))
        else:
            return False
        # All wait equally long, so the first of them is due first.
        self._awaited[post] = self._clock() + self._timeout
        return True

    def _wait(self, post: _Post, answer: Any) -> None:  # noqa: ANN401 - any
        wait = wait_of(answer)
        while wait is not None:
            began = self._clock()
            try:
                wait(timeout=self._timeout)
            except Exception:
                # Is this its own error, or does it mean "no result yet"? Many classes
                # mean the latter; but an error of its own comes again at once at the
                # next call.
                is_early = self._clock() - began < self._timeout / 2
                if is_early or post.letter.lane.epoch.is_closed:
                    raise
            else:
                return

    def _answered(
        self, post: _Post, ticket: object, error: BaseException | None
    ) -> None:
        if id(post.letter) not in self._posts:
            return  # the answer came twice
        if error is None:  # a late answer counts, too
            self.then(post.letter)
            self._forget(post)
        elif post.ticket is ticket:
            self._failed(post, error)

    def _forget(self, post: _Post) -> None:
        post.ticket = object()
        self._awaited.pop(post, None)
        with self._lock:
            self._posts.pop(id(post.letter), None)

    def _failed(self, post: _Post, error: BaseException) -> None:
        if isinstance(error, _TOO_LARGE) and not post.is_brief:
            post.is_brief = True
            self._try(post)
        elif _is_final(error):
            self.refused(post.letter, error)
            self._forget(post)
        elif isinstance(error, HandlersFailError):
            self.broken(error)
            self._forget(post)
        else:
            self._again(post, error)

    def _again(self, post: _Post, error: BaseException) -> None:
        delay = max(0.01, self._retry.delay(post.tries, self.draw()))
        post.ticket = object()
        post.is_waiting = True
        self._awaited.pop(post, None)
        due = self._clock() + delay
        heapq.heappush(self._again_at, (due, next(self._numbers), post))
        self._tell(
            worker_events.DeadLetterFailed,
            post.letter,
            attempt=post.tries,
            delay=delay,
            error=shown(error),
        )

    def _tell_is_slow(self, letter: Letter, seconds: float) -> None:
        self._tell(worker_events.DeadLetterSlow, letter, seconds=seconds)

    def _tell(self, kind: Any, letter: Letter, **fields: object) -> None:  # noqa: ANN401 - a class of event
        tp = letter.lane.epoch.tp
        self._emit(
            kind,
            partition=f"{tp.topic}:{tp.partition}",
            offset=letter.record.offset,
            **fields,
        )


def wait_of(answer: Any) -> Callable[..., object] | None:  # noqa: ANN401 - any
    """
    Return the function that waits for a sink's answer.

    It is None if there is nothing to wait for.
    """
    if isinstance(answer, Mapping):  # it has a get() but is not a future
        return None
    wait = getattr(answer, "get", None) or getattr(answer, "result", None)
    return wait if callable(wait) else None


class UnsendableError(Reject):
    """The record's own data cannot be written by any producer of this kind."""


def _is_final(error: BaseException) -> bool:
    # True for an error that is about this record, at any time. Not: a missing
    # permission, an unknown topic or a closed producer, which concern all letters and
    # can be repaired.
    return isinstance(error, (*_TOO_LARGE, InvalidRecordError, Reject))


def _error_of(future: Any) -> BaseException | None:  # noqa: ANN401 - concurrent.futures'
    try:
        error: BaseException | None = future.exception()
    except BaseException as cancelled:  # noqa: BLE001 - it was
        return cancelled
    return error


# ------------------------------------------------------------ letters for a topic


def sink_of(setting: DeadLetter, group: str) -> Sink:
    """Return a sink that sends records to the topic, with headers about the failure."""

    def send(record: Any, failure: Failure) -> object:  # noqa: ANN401 - upstream's record
        value, headers = _fitting(record, _headers(record, failure))
        headers += [
            (f"{PREFIX}{name}", text.encode("utf-8", "replace"))
            for name, text in _told(record, failure, group).items()
        ]
        letter = {"key": record.key, "value": value}
        try:
            return _send_to(setting, headers, failure, **letter)
        except (TypeError, ValueError, AssertionError) as error:
            if _is_a_tracers(error):
                raise
            why = f"the producer cannot write it: {shown(error)}"
            raise UnsendableError(why) from error

    return send


def _send_to(
    setting: DeadLetter,
    headers: Headers,
    failure: Failure,
    **letter: Any,  # noqa: ANN401 - key and value
) -> object:
    # A tracer may fail after the record was sent, so it is sent once more without the
    # tracer, and not again and again.
    producer = setting.producer
    kind: Any = type(producer)
    try:
        traced = OneTrace(headers, failure.trace)
        return producer.send(setting.topic, headers=traced, **letter)
    except (TypeError, ValueError, AssertionError) as error:
        wrapper = getattr(getattr(kind, "send", None), "_self_wrapper", None)
        is_around = str(getattr(wrapper, "__module__", "")).startswith(_TRACERS)
        if not (is_around and _is_a_tracers(error)):
            raise
    return kind.send.__wrapped__(producer, setting.topic, headers=[*headers], **letter)


def _is_a_tracers(error: BaseException) -> bool:
    # OpenTelemetry's instrumentor, which wraps upstream's send, calls samplers and
    # propagators of other packages: their errors say nothing about the record.
    upstream = inspect.unwrap(KafkaProducer.send).__code__
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return all(frame.f_code is not upstream for frame in frames) and any(
        str(frame.f_globals.get("__name__")).startswith(_TRACERS) for frame in frames
    )


def _headers(record: Any, failure: Failure) -> Headers:  # noqa: ANN401 - upstream's record
    own = [one for one in record.headers or () if one[0] not in failure.trace]
    return own + [one for one in failure.trace.items() if one[1] is not None]


def _fitting(
    record: Any,  # noqa: ANN401 - upstream's
    had: Headers,
) -> tuple[Any, list[tuple[str, bytes]]]:
    # Kafka has null headers, and records with neither key nor value; kafka-python's
    # producer (3.0.12) accepts neither.
    value = record.value
    headers = [(name, b"" if one is None else one) for name, one in had]
    null = [name for name, one in had if one is None]
    if null:
        names = cut(",".join(null), 256)
        headers.append((NULL_HEADERS, names.encode()))
    if value is None and record.key is None:
        value = b""
        headers.append((NULL_VALUE, b"true"))
    return value, headers


def _told(record: Any, failure: Failure, group: str) -> dict[str, str]:  # noqa: ANN401 - upstream's record
    error = failure.error
    kind = type(error)
    told = {
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "timestamp": str(record.timestamp),
        "group": group,
        "attempts": str(failure.attempts),
        "exception": cut(f"{kind.__module__}.{kind.__qualname__}", 256),
        "message": message(error),
    }
    if failure.is_brief:
        return {**told, "message": cut(told["message"], 128)}
    return {**told, "stack": stack(error)}


def letters_of(
    dead_letter: DeadLetter | Sink | None,
    retry: Retry,
    group: str,
    emit: Callable[..., None],
    clock: Callable[[], float],
) -> DeadLetters | None:
    """
    Return the object that posts dead letters; None if no sink is set.

    Raises:
        WorkerSettingError: the sink cannot be called, or needs an event loop.
    """
    if dead_letter is None:
        return None
    if isinstance(dead_letter, DeadLetter):
        sink = sink_of(dead_letter, group)
        return DeadLetters(sink, dead_letter.timeout, retry, emit, clock)
    refuse_class(dead_letter, "dead_letter")
    if isinstance(dead_letter, str):
        message = (
            f"dead_letter={dead_letter!r} lacks the producer that writes there: "
            f"dead_letter=DeadLetter(KafkaProducer(...), {dead_letter!r})"
        )
        raise WorkerSettingError(message)
    check_callable(dead_letter, "dead_letter", "record", "failure")
    if is_async(dead_letter):
        why = (
            f"dead_letter is called in a thread, and {dead_letter!r} is a coroutine "
            f"function: give a plain one, which may return a future"
        )
        raise WorkerSettingError(why)
    return DeadLetters(dead_letter, _SINK_SECONDS, retry, emit, clock)


def _nothing(*_told: object) -> None:
    """Do nothing."""
