"""Runs a worker's handler on records without a broker, while time is made to jump."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, Literal

from attrs import evolve, frozen
from kafka.consumer.fetcher import ConsumerRecord
from kafka.serializer import Deserializer
from kafka.serializer.wrapper import DeserializeWrapper
from kafka.structs import TopicPartition

from safeconsumer.errors import WorkerSettingError
from safeconsumer.events import Event
from safeconsumer.events.dispatch import Dispatcher, Hook
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.scope import Scope
from safeconsumer.testing.errors import EndlessRunError
from safeconsumer.worker import events as worker_events
from safeconsumer.worker.breaker import Breaker
from safeconsumer.worker.client import Others
from safeconsumer.worker.dead_letters import (
    Failure,
    Sink,
    letters_of,
    sink_of,
    when_sent,
)
from safeconsumer.worker.deserializing import Readers
from safeconsumer.worker.executors.aio import in_time
from safeconsumer.worker.executors.lifespan import (
    MakeLifespan,
    check_lifespan,
    enter,
    enter_async,
    not_left,
)
from safeconsumer.worker.handlers import (
    Context,
    Reject,
    Slot,
    call_batch,
    call_each,
    context_of,
    is_async,
)
from safeconsumer.worker.partition import Epoch, Held
from safeconsumer.worker.progress import Chunk
from safeconsumer.worker.queue import (
    Lanes,
    Letter,
    OnExhausted,
    Outcome,
    Policy,
    Queue,
    Task,
    order_of,
    record_key,
)
from safeconsumer.worker.records import Handle, HandleBatch, Record
from safeconsumer.worker.results import Schedule
from safeconsumer.worker.routes import chosen
from safeconsumer.worker.settings import (
    DeadLetter,
    Limits,
    Retry,
    check_breaker,
    check_callable,
    check_counts,
    check_key,
    check_kinds,
    check_on_exhausted,
)
from safeconsumer.worker.throttle import check_throttles, check_timeout

_GROUP = "run_worker"
# Seconds to wait for what a sink of dead letters returned, as a worker does.
_PATIENCE = 30.0
# Settings of a worker that change nothing here: one handler runs at a time, all records
# are there at once, nothing is committed, and nobody takes a partition away.
_NEEDLESS = frozenset({"concurrency", "topic_concurrency", "commit", "drain"})


@frozen(kw_only=True)
class Call:
    """
    One call of the handler.

    Attributes:
        records: what it was given: one, or a batch.
        attempt: of the records, from 1.
        at: when, in seconds since the run began; only the worker's waits count.
        error: what it raised; None if it returned.
    """

    records: tuple[Any, ...]
    attempt: int
    at: float
    error: BaseException | None = None


@frozen(kw_only=True)
class RetriedRecord:
    """
    A record that came again, or was to; of those of a batch that did, the first.

    Attributes:
        record: as it was given.
        attempt: that failed.
        delay: seconds it waited, unless something held it for longer.
    """

    record: Any
    attempt: int
    delay: float


@frozen(kw_only=True)
class DeadRecord:
    """
    A record that became a dead letter.

    Attributes:
        record: as it was given.
        error: why.
        attempts: how often it was tried.
        letter: what a :class:`~safeconsumer.DeadLetter` would have its producer send:
            ``key``, ``value`` and ``headers``; None with any other sink.
    """

    record: Any
    error: BaseException
    attempts: int
    letter: Mapping[str, Any] | None = None


@frozen(kw_only=True)
class WorkerRun:
    """
    What became of the records.

    Attributes:
        calls: of the handler, in their order.
        done: records that were handled, in the order in which they were done.
        retried: what came again, in the order in which it failed.
        dead_letters: in the order in which they were acknowledged.
        skipped: records that failed for good and were passed over.
        left: records that are not complete: behind a stop, or behind one that blocks.
        error: what :meth:`Worker.run` would have raised.
        is_stopped: whether the handler asked it to stop, by :class:`StopWorker`.
        committed: by partition, the offset that would have been committed.
        seconds: how long the worker's waits would have taken together.
        events: the events that hooks would have got, in order.
    """

    calls: tuple[Call, ...]
    done: tuple[Any, ...]
    retried: tuple[RetriedRecord, ...]
    dead_letters: tuple[DeadRecord, ...]
    skipped: tuple[Any, ...]
    left: tuple[Any, ...]
    error: BaseException | None
    is_stopped: bool
    committed: Mapping[TopicPartition, int]
    seconds: float
    events: tuple[Event, ...]

    @property
    def order(self) -> tuple[tuple[str, int, int], ...]:
        """Topic, partition and offset of each record of each call, in order."""
        return tuple(
            (record.topic, record.partition, record.offset)
            for call in self.calls
            for record in call.records
        )


def make_record(  # noqa: PLR0913 - one keyword per field, all with defaults
    value: Any = None,  # noqa: ANN401 - bytes, or what a deserializer made of them
    key: Any = None,  # noqa: ANN401 - the same
    *,
    topic: str = "topic",
    partition: int = 0,
    offset: int | None = None,
    headers: Sequence[tuple[str, bytes | None]] = (),
    timestamp: int = 0,
) -> Any:  # noqa: ANN401 - upstream's record
    """
    Make a record as kafka-python's consumer returns them.

    Args:
        value: bytes, or what your deserializer makes of them.
        key: the same.
        topic: where it stands.
        partition: its number.
        offset: None for the one behind the record before, in :func:`run_worker`.
        headers: names with bytes.
        timestamp: milliseconds since 1970.
    """
    sizes = (
        _size(key),
        _size(value),
        sum(len(name.encode()) + len(one or b"") for name, one in headers) or -1,
    )
    return ConsumerRecord(
        topic,
        partition,
        -1,
        offset,
        timestamp,
        0,
        key,
        value,
        list(headers),
        None,
        *sizes,
    )


def _size(data: object) -> int:
    return len(data) if isinstance(data, bytes) else -1


def run_worker(  # noqa: PLR0913 - a worker's settings, all with defaults
    handler: Handle | HandleBatch | None = None,
    records: Iterable[Any] = (),
    *,
    handlers: Mapping[str, Handle | HandleBatch] | None = None,
    order: Literal["partition", "key", "unordered"] = "partition",
    key: Callable[[Any], object] = record_key,
    executor: object = None,
    batch: int | None = None,
    batch_within: float = 0.0,
    rate: float | None = None,
    handler_timeout: float | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    retry: Retry = Retry(),  # noqa: B008 - frozen
    dead_letter: DeadLetter | Sink | Literal[True] | None = None,
    on_exhausted: OnExhausted = "stop",
    breaker: Breaker | None = None,
    key_deserializer: object = None,
    value_deserializer: object = None,
    lifespan: MakeLifespan | None = None,
    on_event: Hook | None = None,
    max_calls: int = 10_000,
    **others: object,
) -> WorkerRun:
    """
    Handle the records as a :class:`Worker` with these settings would, and tell how.

    No broker, no threads and no waiting: the schedule and the policies are the
    worker's, one handler runs at a time, in this thread, and its waits are jumped over.
    The same records with the same settings give the same run. A wait within a handler
    is a real one.

    Args:
        handler: as the worker's ``handle``.
        records: :func:`make_record`'s, or kafka-python's; in order within their
            partition.
        handlers: as the worker's, instead of ``handler``.
        order: as the worker's.
        key: as the worker's.
        executor: ``"thread"`` or ``"asyncio"``; None for what fits the handler.
        batch: as the worker's.
        batch_within: as the worker's. All records are there from the beginning, so only
            the last batch of a partition waits, and in vain.
        rate: as the worker's.
        handler_timeout: as the worker's: a coroutine is cancelled after so many
            seconds, which it really takes. No function is: a thread that takes longer
            is only reported by a worker, and nothing comes of it here.
        limits: only its ``span`` matters.
        retry: as the worker's; what ``jitter`` draws is always three quarters.
        dead_letter: as the worker's, but the producer of a :class:`DeadLetter` sends
            nothing; True for only noting them. A callable is called.
        on_exhausted: as the worker's.
        breaker: as the worker's.
        key_deserializer: as the consumer's; None: records have what handlers get.
        value_deserializer: the same.
        lifespan: as the worker's, entered once around the run.
        on_event: takes every event.
        max_calls: of the handler, at most; ``key`` may fail as often.
        others: settings of a worker that change nothing here: ``concurrency``,
            ``topic_concurrency``, ``commit`` and ``drain``.

    Returns:
        What became of each record; see :class:`WorkerRun`. What the worker's ``run()``
        would raise is its ``error``.

    Raises:
        WorkerSettingError: a setting is impossible, or one that this cannot do, such
            as ``executor="process"``; or the records are missing or out of order.
        LifespanError: the lifespan could not be entered, or left.
        EndlessRunError: the handler was called ``max_calls`` times, or ``key`` failed
            more often.
        BaseException: what is no ``Exception`` and came out of the handler; what
            ``dead_letter`` raised, or its future, but for :class:`Reject`.
    """
    _refuse_unknown(others)
    check_kinds(limits=limits, retry=retry)
    check_key(key, order)
    check_counts(max_calls=max_calls, batch=1 if batch is None else batch)
    check_throttles(batch, batch_within, rate)
    check_timeout(handler_timeout)
    check_on_exhausted(on_exhausted)
    check_breaker(breaker)
    bench = _Bench(max_calls, on_event)
    readers = Readers(_reader(key_deserializer), _reader(value_deserializer))
    policy = Policy(
        retry=retry,
        on_exhausted=on_exhausted,
        post=None if dead_letter is None else bench.letters.append,
        max_ratio=getattr(dead_letter, "max_ratio", None),
        max_consecutive=getattr(dead_letter, "max_consecutive", None),
        span=limits.span,
        quantum=batch or 1,
        is_batch=batch is not None,
        within=batch_within,
        rate=rate,
        draw=lambda: 0.5,
    )
    keys = bench.counting(readers.key_of(key))
    bench.set_up(Lanes(order_of(order), keys), policy, breaker)
    bench.sink = _sink(dead_letter, bench)
    called = chosen(handler, handlers, _executor(executor, handler, handlers))
    check_lifespan(lifespan, executor)
    with _called_here(called, lifespan, handler_timeout) as (here, bench.state):
        noting = bench.noting(here, is_batch=batch is not None)
        bench.handle = readers.before(noting, is_batch=batch is not None)
        bench.admit(records)
        bench.run()
    return bench.report()


def _refuse_unknown(others: Mapping[str, object]) -> None:
    unknown = sorted(others.keys() - _NEEDLESS)
    if unknown:
        message = (
            f"run_worker has no broker, no group and no time, so it cannot do "
            f"{', '.join(unknown)}: try that with a Worker on a broker, for example "
            f"safeconsumer.testing.EmbeddedBroker"
        )
        raise WorkerSettingError(message)


def _reader(deserializer: Any) -> Any:  # noqa: ANN401 - as the consumer takes it
    # As kafka-python's consumer does, which takes plain functions.
    if deserializer is None or isinstance(deserializer, Deserializer):
        return deserializer
    return DeserializeWrapper(check_callable(deserializer, "a deserializer"))


def _executor(executor: object, handler: object, handlers: object) -> object:
    if executor is None:
        many = handlers if isinstance(handlers, Mapping) else {"": handler}
        return "asyncio" if any(map(is_async, many.values())) else "thread"
    if executor not in ("thread", "asyncio"):
        message = (
            f"run_worker calls handlers in this thread, one at a time: leave executor "
            f"out, or try {executor!r} with a Worker on a broker"
        )
        raise WorkerSettingError(message)
    return executor


@contextlib.contextmanager
def _called_here(
    handle: Callable[..., Any], lifespan: MakeLifespan | None, seconds: float | None
) -> Iterator[tuple[Callable[..., Any], Any]]:
    # What is called in this thread, and the value of the lifespan around all calls.
    if not is_async(handle):
        stack = contextlib.ExitStack()
        state = enter(stack, lifespan)
        with _leaving(stack.close):
            yield handle, state
        return
    with contextlib.suppress(RuntimeError):
        asyncio.get_running_loop()
        message = (
            "an event loop runs in this thread, so coroutines cannot be run to their "
            "end: call run_worker in a plain test, or by asyncio.to_thread()"
        )
        raise WorkerSettingError(message)
    with asyncio.Runner() as runner:
        around = contextlib.AsyncExitStack()
        state = runner.run(enter_async(around, lifespan))
        call = in_time(handle, seconds)
        with _leaving(lambda: runner.run(around.aclose())):
            yield lambda *args: runner.run(call(*args)), state


@contextlib.contextmanager
def _leaving(leave: Callable[[], None]) -> Iterator[None]:
    # As a worker does: it is not told what ended the run.
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):
            leave()
        raise
    try:
        leave()
    except BaseException as error:
        raise not_left(error) from error


def _sink(dead_letter: object, bench: "_Bench") -> Sink | None:
    if dead_letter is None or dead_letter is True:
        return None
    letters_of(dead_letter, Retry(), _GROUP, bench.emit)  # type: ignore[arg-type]  # it checks
    if isinstance(dead_letter, DeadLetter):
        return sink_of(evolve(dead_letter, producer=bench), _GROUP)
    return dead_letter  # type: ignore[return-value]  # it was checked


class _Bench:
    """
    A worker without threads, whose clock jumps to what is due next.

    Attributes:
        letters: records that failed for good, on their way.
        sink: takes them; None for nobody.
        state: the lifespan's value.
        handle: what is called for a task's records.
    """

    handle: Callable[..., Any]

    def __init__(self, max_calls: int, on_event: Hook | None) -> None:
        self._max_calls = max_calls
        self._now = 0.0
        self._sent: Mapping[str, Any] | None = None
        self._calls: list[Call] = []
        self._done: list[Any] = []
        self._dead: list[DeadRecord] = []
        self._events: list[Event] = []
        self._given: dict[Chunk, list[Any]] = {}
        self._epochs: list[Epoch] = []
        self._keyless = 0
        self._dispatcher = Dispatcher(() if on_event is None else (on_event,))
        self.letters: deque[Letter] = deque()
        self.sink: Sink | None = None
        self.state: Any = None

    def _clock(self) -> float:
        return self._now

    def emit(self, kind: Callable[..., Event], **fields: Any) -> None:  # noqa: ANN401 - the event's own
        """Take note of an event."""
        ids = {"client_id": None, "group_id": _GROUP}
        event = kind(at=self._now, **ids, **fields)
        self._events.append(event)
        self._dispatcher.dispatch(event)

    def send(self, _topic: str, **letter: Any) -> None:  # noqa: ANN401 - a producer's own
        """Take note of what a producer would send."""
        self._sent = letter

    # ------------------------------------------------------------ before the run

    def set_up(self, lanes: Lanes, policy: Policy, breaker: Breaker | None) -> None:
        """Make the schedule."""
        self._held = Held(self._clock)
        self._ledger = PauseLedger((), clock=self._clock, wall=self._clock)
        queue = Queue(self._held, lanes, policy, self._clock, Others(self._ledger))
        self._schedule = Schedule(queue, self.emit, self._hold, breaker)
        self._ledger.lookers.append(queue.obey)

    def _hold(self, scope: Scope, owner: str, reason: str, seconds: float) -> None:
        self._ledger.place([scope], owner=owner, reason=reason, for_=seconds)

    def noting(self, handle: Callable[..., Any], *, is_batch: bool) -> Any:  # noqa: ANN401 - a handler
        """Return the handler, with each of its calls noted."""

        def note(records: Any, context: Context) -> Any:  # noqa: ANN401 - a handler
            at, error = self._now, None
            try:
                return handle(records, context)
            except BaseException as raised:
                error = raised
                raise
            finally:
                given = tuple(records) if is_batch else (records,)
                self._calls.append(
                    Call(records=given, attempt=context.attempt, at=at, error=error)
                )

        return note

    def counting(self, key: Callable[[Any], object]) -> Callable[[Any], object]:
        """Return the key, with each of its failures counted."""

        def key_of(record: Any) -> object:  # noqa: ANN401 - a record
            try:
                return key(record)
            except BaseException:
                self._keyless += 1
                raise

        return key if key is record_key else key_of

    def admit(self, records: Iterable[Any]) -> None:
        """Take the records, as one poll would return them."""
        found: dict[TopicPartition, list[Any]] = {}
        for record in records:
            _add(found, record)
        if not found:
            message = "run_worker needs records: see safeconsumer.testing.make_record"
            raise WorkerSettingError(message)
        self._ledger.assign(list(found))
        for tp, some in found.items():
            epoch = self._held.open(tp, 1, 0, some[0].offset)
            self._epochs.append(epoch)
            chunk = self._held.admit(epoch, some)
            self._given[chunk] = some
            self._schedule.admit(epoch, chunk)

    # ------------------------------------------------------------ the run

    def run(self) -> None:
        """Work until nothing is left that would ever come."""
        while not self._is_over():
            self._refuse_endless(self._keyless - 1, "key failed more than")
            tasks = self._schedule.queue.claim()
            for task in tasks:
                self._schedule.complete([self._call(task)])
            self._post_all()
            if not tasks and not self._jump():
                break
        fatal = self._schedule.fatal
        if fatal is not None and not isinstance(fatal, Exception):
            raise fatal

    def _is_over(self) -> bool:
        return self._schedule.is_stop_asked or self._schedule.fatal is not None

    def _call(self, task: Task) -> Outcome:
        self._refuse_endless(len(self._calls), "the handler was called")
        context = context_of(task, lambda: None, self.state)
        call = call_batch if self._schedule.queue.policy.is_batch else _call_one
        given = {index: task.chunk.records[index] for index in task.indexes}
        outcome = call(self.handle, task, Slot(), context)
        self._done += [given[index] for index in outcome.finished]
        return outcome

    def _refuse_endless(self, count: int, what: str) -> None:
        if count >= self._max_calls:
            message = (
                f"{what} {self._max_calls} times and records still come again; give "
                f"max_calls if that is meant"
            )
            raise EndlessRunError(message)

    def _jump(self) -> bool:
        soon = min(self._schedule.turn(), self._ledger.seconds_to_next_expiry())
        queue = self._schedule.queue
        if queue.ready and not queue.seconds_to_room():
            return True
        if soon == float("inf"):
            return False
        self._now += max(0.0, soon)
        self._schedule.turn()
        return True

    def _post_all(self) -> None:
        while self.letters and not self._is_over():
            letter = self.letters.popleft()
            failure = Failure(error=letter.error, attempts=letter.attempt)
            self._sent = None
            try:
                if self.sink is not None:
                    answers: SimpleQueue[BaseException | None] = SimpleQueue()
                    when_sent(self.sink(letter.record, failure), answers.put)
                    error = answers.get(timeout=_PATIENCE)
                    if error is not None:
                        raise error
            except Reject as why:
                self._schedule.letter_refused(letter, why)
                continue
            dead = DeadRecord(
                record=letter.record,
                error=letter.error,
                attempts=letter.attempt,
                letter=self._sent,
            )
            self._dead.append(dead)
            self._schedule.letter_acknowledged(letter)

    # ------------------------------------------------------------ afterwards

    def report(self) -> WorkerRun:
        """Tell what became of everything."""
        marks = self._held.watermarks()
        return WorkerRun(
            calls=tuple(self._calls),
            done=tuple(self._done),
            retried=tuple(self._retried()),
            dead_letters=tuple(self._dead),
            skipped=tuple(self._skipped()),
            left=tuple(self._left()),
            error=self._schedule.fatal,
            is_stopped=self._schedule.is_stop_asked,
            committed={tp: mark.offset for tp, mark in marks.items()},
            seconds=self._now,
            events=tuple(self._events),
        )

    def _left(self) -> Iterator[Any]:
        for epoch in self._epochs:
            for chunk, index in epoch.progress.incomplete():
                yield self._given[chunk][index]

    def _retried(self) -> Iterator[RetriedRecord]:
        at = self._by_place()
        for event in self._events:
            match event:
                case worker_events.RecordRetried(delay=delay):
                    pass
                case worker_events.WorkPaused(seconds=delay):
                    pass
                case _:
                    continue
            yield RetriedRecord(
                record=at[event.partition, event.offset],
                attempt=event.attempt,
                delay=delay,
            )

    def _skipped(self) -> Iterator[Any]:
        at = self._by_place()
        kinds = (worker_events.RecordExhausted, worker_events.DeadLetterRefused)
        for event in self._events:
            if isinstance(event, kinds) and event.then == "skip":
                yield at[event.partition, event.offset]

    def _by_place(self) -> dict[tuple[str, int], Any]:
        return {
            (f"{one.topic}:{one.partition}", one.offset): one
            for some in self._given.values()
            for one in some
        }


def _call_one(
    handle: Callable[..., Any], task: Task, slot: Slot, context: Context
) -> Outcome:
    return call_each(handle, task, slot, context, 0.0)


def _add(found: dict[TopicPartition, list[Record[Any, Any]]], record: Any) -> None:  # noqa: ANN401 - to be checked
    if not isinstance(record, ConsumerRecord):
        message = (
            f"a record is one of kafka-python's, as safeconsumer.testing.make_record "
            f"makes them, not {record!r:.200}"
        )
        raise WorkerSettingError(message)
    some = found.setdefault(TopicPartition(record.topic, record.partition), [])
    after = some[-1].offset + 1 if some else 0
    if record.offset is None:
        record = record._replace(offset=after)
    if record.offset < after:
        message = (
            f"{record.topic}:{record.partition} has offset {record.offset} behind "
            f"{after - 1}: records of a partition stand in the order of their offsets"
        )
        raise WorkerSettingError(message)
    some.append(record)
