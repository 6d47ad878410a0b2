"""Posts dead letters one by one; their records are complete once they are acknowledged."""

import contextlib
import heapq
import itertools
import math
import queue
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Any, TypeAlias

from attrs import define, frozen
from kafka.errors import (
    InvalidRecordError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
)
from kafka.future import Future as KafkaFuture

from safeconsumer.errors import WorkerSettingError
from safeconsumer.worker import events as worker_events
from safeconsumer.worker import forks
from safeconsumer.worker.calls import blamed, is_async, refuse_undone
from safeconsumer.worker.handlers import HandlersFailError, Reject
from safeconsumer.worker.letters_format import written
from safeconsumer.worker.partition import Epoch
from safeconsumer.worker.retry import Retry
from safeconsumer.worker.settings import DeadLetter, check_callable, refuse_class
from safeconsumer.worker.tasks import Letter
from safeconsumer.worker.tracebacks import shown


@frozen(kw_only=True)
class Failure:
    """
    Why a record is a dead letter; passed to the callable that takes dead letters.

    Attributes:
        error: the last exception of the handler; its traceback may have no local
            variables any more.
        attempts: the number of attempts, as ``Context.attempt`` counts them.
        is_brief: whether the letter was too large before: write a shorter one.
    """

    error: BaseException
    attempts: int
    is_brief: bool = False


Sink: TypeAlias = Callable[[Any, Failure], object]
"""
It takes a record and its failure. If it returns, the letter is acknowledged; a future
of kafka-python or of ``concurrent.futures`` that it returns is waited for until it
ends. What ends later and says so to nobody, such as a coroutine, an asyncio future or
the result of a ``multiprocessing`` pool, stops the worker with a ``HandlersFailError``.
If it raises :class:`~safeconsumer.Reject`, the record can never be a letter.
"""

# Seconds after which a letter that its sink still has leads to an event: a producer may
# wait in ``send`` for the metadata of an unknown topic, or for its acknowledgement.
_SLOW_SECONDS = 5.0

Acknowledged: TypeAlias = Callable[[Letter], None]
Refused: TypeAlias = Callable[[Letter, BaseException], None]
Epochs: TypeAlias = Collection[Epoch] | None

_TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)


@define(eq=False)
class _Post:
    """
    A letter on its way.

    Attributes:
        tries: how often it was given to the sink.
        letter: None once its ownership has ended, unless the sink has it.
        is_brief: whether it must be shorter.
        is_waiting: whether it failed, and waits for another try.
        since: when it was last given to the sink; None before that, and while it waits.
        is_told: whether it was reported as slow since then.
    """

    letter: Letter | None
    tries: int = 0
    is_brief: bool = False
    is_waiting: bool = False
    since: float | None = None
    is_told: bool = False


class DeadLetters:
    """
    Posts letters in its own daemon thread, which may wait for the sink.

    While it waits for an answer, the letters behind it are sent.

    Args:
        sink: the callable that takes the record.
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
        retry: Retry,
        emit: Callable[..., None],
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._sink = forks.leaving(sink)
        self._clock = clock or time.monotonic
        self._retry = retry
        self._emit = emit
        # Posts, answers, and None at the end.
        self._inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._posts: set[_Post] = set()
        self._lock = threading.Lock()  # of _posts; nothing is called under it
        # These belong to the thread: letters not begun, and those that wait for another
        # try.
        self._new: deque[_Post] = deque()
        self._again_at: list[tuple[float, int, _Post]] = []
        self._numbers = itertools.count()
        self._is_over = False
        self._sending: _Post | None = None
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
            self._posts.add(post)
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
                and (letter := post.letter) is not None
                and not (epoch := letter.lane.epoch).is_closed
                and (epochs is None or epoch in epochs)
                for post in self._posts
            )

    def turn(self) -> None:
        """Forget the letters of ended ownerships, and report slow ones. Polling thread."""
        now = self._clock()
        with self._lock:
            posts = [*self._posts]
        for post in posts:
            letter, since = post.letter, post.since
            if letter is None or letter.lane.epoch.is_closed:
                # Here, as the thread may wait for a sink that never returns: each has
                # all the records that came with it.
                if post is not self._sending:
                    self._forget(post)
                    post.letter = None
            elif (
                since is not None and not post.is_told and now - since >= _SLOW_SECONDS
            ):
                # If we sent it again, two might arrive: its producer gives it up, not we.
                post.is_told = True
                self._tell(worker_events.DeadLetterSlow, post, seconds=now - since)

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
            self._hear(0.0)  # first what became of the one before
            if self._new:
                self._try(self._new.popleft())
        again = self._again_at
        return again[0][0] - self._clock() if again else math.inf

    # ------------------------------------------------------------ its thread

    def _begin(self) -> None:
        if not self._thread.is_alive():
            try:
                self._thread.start()
            except RuntimeError as error:  # another letter was quicker, perhaps
                if self._thread.ident is None:
                    wrong = HandlersFailError(f"dead letters cannot begin: {error}")
                    wrong.__cause__ = error
                    self.broken(wrong)

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
        with contextlib.suppress(queue.Empty):
            self._take(self._inbox.get(timeout=wait))
            for _ in range(self._inbox.qsize()):
                self._take(self._inbox.get_nowait())

    def _take(self, said: Any) -> None:  # noqa: ANN401 - any of what is put in
        if said is None:
            self._is_over = True
        elif isinstance(said, _Post):
            self._new.append(said)
        else:
            self._answered(*said)

    def _until_next(self) -> float | None:
        if self._new:
            return 0.0
        if not self._again_at:
            return None
        return max(0.0, self._again_at[0][0] - self._clock())

    def _try_one_again(self) -> None:
        # One at a time, so that others get their turn however slow the sink is.
        if self._is_over or not self._again_at:
            return
        if self._again_at[0][0] <= self._clock():
            _, _, post = heapq.heappop(self._again_at)
            if post in self._posts:
                self._try(post)

    def _try(self, post: _Post) -> None:
        letter = post.letter
        # If its partition was revoked, another member handles the record again; a
        # letter that was sent already is waited for, and completes the record.
        if letter is None or letter.lane.epoch.revoked.is_set():
            self._forget(post)
            return
        post.tries += 1
        post.is_waiting = post.is_told = False
        failure = Failure(
            error=letter.error,
            attempts=letter.attempt,
            is_brief=post.is_brief,
        )
        post.since = self._clock()
        self._sending = post
        try:
            answer = self._sink(letter.record, failure)
            when_sent(answer, lambda error: self._inbox.put((post, error)))
        except BaseException as error:  # noqa: BLE001 - whatever the sink raises
            self._failed(post, blamed(error))
        finally:
            self._sending = None

    def _answered(self, post: _Post, error: BaseException | None) -> None:
        letter = post.letter
        if letter is None or post not in self._posts:
            self._forget(post)  # its ownership has ended
        elif error is None:
            self.then(letter)
            self._forget(post)
        else:
            self._failed(post, error)

    def _forget(self, post: _Post) -> None:
        with self._lock:
            self._posts.discard(post)

    def _failed(self, post: _Post, error: BaseException) -> None:
        letter = post.letter
        if isinstance(error, _TOO_LARGE) and not post.is_brief:
            post.is_brief = True
            self._try(post)
        elif letter is not None and _is_final(error):
            self.refused(letter, error)
            self._forget(post)
        elif isinstance(error, HandlersFailError):
            self.broken(error)
            self._forget(post)
        else:
            self._again(post, error)

    def _again(self, post: _Post, error: BaseException) -> None:
        delay = max(0.01, self._retry.delay(post.tries, self.draw()))
        post.is_waiting, post.since = True, None
        due = self._clock() + delay
        heapq.heappush(self._again_at, (due, next(self._numbers), post))
        self._tell(
            worker_events.DeadLetterFailed,
            post,
            attempt=post.tries,
            delay=delay,
            error=shown(error),
        )

    def _tell(self, kind: Any, post: _Post, **fields: object) -> None:  # noqa: ANN401 - a class of event
        letter = post.letter
        if letter is None:
            return
        tp = letter.lane.epoch.tp
        self._emit(
            kind,
            partition=f"{tp.topic}:{tp.partition}",
            offset=letter.record.offset,
            **fields,
        )


def when_sent(answer: Any, say: Callable[[BaseException | None], None]) -> None:  # noqa: ANN401 - any
    """
    Have it said once what became of a letter: None if it was sent, or its error.

    Args:
        answer: what the sink returned; whatever is no future means that it was sent.
        say: called here, or later on any thread.

    Raises:
        HandlersFailError: it ends later, and nobody would hear of that.
    """
    if isinstance(answer, KafkaFuture):
        answer.add_callback(lambda _: say(None))
        answer.add_errback(say)
    elif isinstance(answer, Future):
        answer.add_done_callback(lambda future: say(_error_of(future)))
    else:
        refuse_undone(answer)
        if any(callable(getattr(answer, name, None)) for name in ("done", "ready")):
            message = (
                f"{shown(answer)} was returned by dead_letter, and does not say when the "
                f"letter is sent: wait for it there, or return a future of "
                f"concurrent.futures"
            )
            raise HandlersFailError(message)
        say(None)


def _is_final(error: BaseException) -> bool:
    # True for an error that is about this record, at any time. Not: a missing
    # permission, an unknown topic or a closed producer, which concern all letters and
    # can be repaired.
    return isinstance(error, (*_TOO_LARGE, InvalidRecordError, Reject))


def _error_of(future: Future[Any]) -> BaseException | None:
    try:
        error = future.exception()
    except BaseException as cancelled:  # noqa: BLE001 - it was
        return cancelled
    return None if error is None else blamed(error)


# ------------------------------------------------------------ letters for a topic


def sink_of(setting: DeadLetter, group: str) -> Sink:
    """Return a sink that sends records to the topic, with headers about the failure."""

    def send(record: Any, failure: Failure) -> object:  # noqa: ANN401 - upstream's record
        value, headers = written(record, failure, group)
        try:
            return setting.producer.send(
                setting.topic, key=record.key, value=value, headers=headers
            )
        except (TypeError, ValueError, AssertionError) as error:
            why = f"the producer cannot write it: {shown(error)}"
            raise Reject(why) from error

    return send


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
        return DeadLetters(sink, retry, emit, clock)
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
    return DeadLetters(dead_letter, retry, emit, clock)


def _nothing(*_told: object) -> None:
    """Do nothing."""
