"""Runs a worker on given records, without a broker and with a clock that skips waits."""

import asyncio
import contextvars
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    nullcontext,
    suppress,
)
from functools import partial
from typing import Any, Literal

from attrs import define, evolve, field, frozen
from kafka.consumer.fetcher import ConsumerRecord
from kafka.serializer import Deserializer
from kafka.serializer.wrapper import DeserializeWrapper
from kafka.structs import TopicPartition

from safeconsumer._checks import positive_int
from safeconsumer.errors.base import WorkerSettingError
from safeconsumer.events import Event
from safeconsumer.events.dispatch import Hook
from safeconsumer.holds import scope
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.scope import partition_text
from safeconsumer.testing.errors import EndlessRunError
from safeconsumer.worker.breaker import Breaker
from safeconsumer.worker.calls import Calls, Slot, call_batch, call_each, context_of
from safeconsumer.worker.client import ConsumerClient
from safeconsumer.worker.dead_letters import Sink, acknowledgement, call_sink
from safeconsumer.worker.decisions import Decisions
from safeconsumer.worker.executors import ExecutorName
from safeconsumer.worker.executors.lifespan import (
    enter,
    enter_async,
    not_left,
)
from safeconsumer.worker.handlers import (
    Context,
    Failure,
    Handle,
    HandleBatch,
    Handler,
    MakeLifespan,
    is_async,
)
from safeconsumer.worker.options import Options, OrderName, Runtime
from safeconsumer.worker.partition import Outcome, Task
from safeconsumer.worker.queue import OnExhausted
from safeconsumer.worker.settings import (
    Commit,
    DeadLetter,
    Drain,
    Limits,
    Retry,
    Tracing,
    check_callable,
)
from safeconsumer.worker.worker import Worker

_GROUP = "run_worker"
# Real seconds to wait for a future that a dead-letter sink returned.
_PATIENCE = 30.0
# The number of consecutive waits without a call after which the run ends even if
# records remain.
_WAITS = 200


@frozen(kw_only=True)
class Call:
    """
    A call of the handler.

    Attributes:
        records: the records that the handler got: one record, or a batch.
        attempt: the number of the attempt, counted from 1.
        at: seconds since the start of the run; only the worker's waits count.
        error: the exception that the call raised; None if it returned.
    """

    records: tuple[Any, ...]
    attempt: int
    at: float
    error: BaseException | None = None


@frozen(kw_only=True)
class DeadRecord:
    """
    A record that became a dead letter.

    Attributes:
        record: the record, with its offset.
        error: the handler's last exception.
        attempts: how many times the record was tried.
        letter: the ``key``, ``value`` and ``headers`` that the producer of a
            :class:`~safeconsumer.DeadLetter` would send; None with any other sink.
    """

    record: Any
    error: BaseException
    attempts: int
    letter: Mapping[str, Any] | None = None


@define(kw_only=True)
class WorkerRun:
    """
    The result of :func:`run_worker`.

    Attributes:
        calls: the handler's calls, in order; a retried record has one call per attempt.
        done: the handled records, in the order of completion.
        dead_letters: the dead letters, in the order of acknowledgement.
        skipped: records that failed for good and were skipped.
        left: records that were not completed, because a failed record blocks its lane
            or the worker stopped.
        error: the exception that :meth:`Worker.run` raised.
        is_stopped: whether the handler stopped the worker with :class:`StopWorker`.
        committed: the group's committed offsets at the end, by partition.
        seconds: the total duration of the worker's waits.
        events: the events that a hook would receive, in order.
    """

    calls: list[Call] = field(factory=list)
    done: list[Any] = field(factory=list)
    dead_letters: list[DeadRecord] = field(factory=list)
    skipped: list[Any] = field(factory=list)
    left: list[Any] = field(factory=list)
    error: Exception | None = None
    is_stopped: bool = False
    committed: dict[TopicPartition, int] = field(factory=dict)
    seconds: float = 0.0
    events: list[Event] = field(factory=list)


def make_record(  # noqa: PLR0913 - one keyword per field, all with defaults
    value: Any = None,  # noqa: ANN401 - bytes, or a deserialized object
    key: Any = None,  # noqa: ANN401 - likewise
    *,
    topic: str = "topic",
    partition: int = 0,
    offset: int | None = None,
    headers: Sequence[tuple[str, bytes | None]] = (),
    timestamp: int = 0,
) -> Any:  # noqa: ANN401 - upstream's record
    """
    Create a record of the type that kafka-python's consumer returns.

    Args:
        value: bytes, or an object as a deserializer would return it.
        key: the same for the record's key.
        topic: the name of the topic.
        partition: the number of the partition.
        offset: the offset; None to let :func:`run_worker` use the next offset.
        headers: pairs of a name and bytes.
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


def run_worker(  # noqa: D417, PLR0913 - the other options are those of a worker
    handler: Handle | HandleBatch,
    records: Iterable[Any] = (),
    *,
    order: OrderName = "partition",
    executor: ExecutorName | None = None,
    concurrency: int = 8,
    batch: int | None = None,
    batch_within: float = 0.0,
    handler_timeout: float | None = None,
    lifespan: MakeLifespan | None = None,
    limits: Limits = Limits(),
    retry: Retry = Retry(),
    dead_letter: DeadLetter | Sink | Literal[True] | None = None,
    on_exhausted: OnExhausted = "stop",
    drain: Drain = Drain(),
    commit: Commit = Commit(),
    breaker: Breaker | None = None,
    on_event: Hook | None = None,
    trace: bool | Tracing = False,
    key_deserializer: Any = None,  # noqa: ANN401 - as the consumer takes it
    value_deserializer: Any = None,  # noqa: ANN401 - likewise
    max_calls: int = 10_000,
) -> WorkerRun:
    """
    Run a :class:`Worker` with these options on the given records; return the result.

    The worker is a real one, but its consumer has only the given records and no broker.
    Its clock skips the worker's waits, and one handler runs at a time, on the calling
    thread. The same records with the same options always give the same run. A wait
    within a handler takes real time, and ``handler_timeout`` is not enforced for plain
    functions.

    The call accepts all worker options; with ``jitter``, each wait is three quarters of
    the full wait. The call also accepts values that a worker would refuse because of
    its consumer's settings (``limits``, ``drain``), or because they cannot be pickled.

    Args:
        handler: the worker's ``handle``.
        records: records from :func:`make_record` or kafka-python, in order within their
            partition. All of these records are available to the first poll.
        executor: the worker's option; None for the executor that fits the handler. The
            handler always runs on the calling thread.
        dead_letter: the worker's option, but the producer of a :class:`DeadLetter`
            sends nothing; True to only record dead letters in the result. A callable is
            called as a worker calls it, and again later if it raises.
        key_deserializer: the consumer's option; None if the records' keys are already
            deserialized.
        value_deserializer: the consumer's option for values.
        max_calls: the maximum number of calls of the handler, and of consecutive waits
            without a call.

    Returns:
        The calls, and the records grouped by outcome. ``error`` contains the exception
        that the worker's ``run()`` would raise.

    Raises:
        WorkerSettingError: an option is invalid; the records are missing or out of
            order; or the handler is a coroutine function and an event loop runs on the
            calling thread.
        EndlessRunError: the handler was called ``max_calls`` times, or ``dead_letter``
            failed more often.
        BaseException: the handler raised an exception that is not an ``Exception``.
    """
    consumer = _Consumer(records, key_deserializer, value_deserializer)
    run = _Run(consumer, on_event, max_calls)
    options = Options(
        consumer=consumer,
        handle=handler,
        order=order,
        executor=executor or ("asyncio" if is_async(handler) else "thread"),
        concurrency=concurrency,
        batch=batch,
        batch_within=batch_within,
        handler_timeout=handler_timeout,
        lifespan=lifespan,
        limits=limits,
        retry=retry,
        dead_letter=run.sink_for(dead_letter),
        on_exhausted=on_exhausted,
        drain=drain,
        commit=commit,
        breaker=breaker,
        on_event=run.note,
        trace=trace,
    )
    return run.play(options)


def _reader(deserializer: Any) -> Any:  # noqa: ANN401 - as the consumer takes it
    # Wrap a plain function, as kafka-python's consumer does.
    if deserializer is None or isinstance(deserializer, Deserializer):
        return deserializer
    return DeserializeWrapper(check_callable(deserializer, "a deserializer"))


class _Consumer:
    """
    Stands in for a consumer and its membership, with the given records.

    Attributes:
        now: the current time in seconds.
        log: the records, by partition.
        committed: the group's committed offsets.
        on_wait: called by a poll that finds no records, with the poll's timeout in
            seconds.
    """

    is_logged = is_taken = is_cooperative = False
    losses = gone = 0
    on_wait: Callable[[float], None]

    def __init__(self, records: Iterable[Any], *readers: Any) -> None:  # noqa: ANN401 - as for a consumer
        self.now = 0.0
        self.log = _log(records)
        self.committed = {tp: some[0].offset for tp, some in self.log.items()}
        self.config = {
            "group_id": _GROUP,
            "client_id": None,
            "enable_auto_commit": False,
            "max_poll_records": 1,
            "max_partition_fetch_bytes": 1,
            "max_poll_interval_ms": math.inf,
        }
        self._readers = readers
        self._at = dict.fromkeys(self.log, 0)
        self.ledger = PauseLedger((), clock=self.clock, wall=self.clock)
        self.ledger.assign(dict.fromkeys(self.log, self))
        self.consumed = self

    def clock(self) -> float:
        return self.now

    # ------------------------------------------------------------ a consumer

    def poll(self, timeout_ms: float, max_records: int) -> dict[TopicPartition, Any]:
        quiet = self.ledger.view().quiet
        polled: dict[TopicPartition, Any] = {}
        for tp in self.lagging():
            at = self._at[tp]
            some = [] if tp in quiet else self.log[tp][at : at + max_records]
            if some:
                polled[tp] = some
                self._at[tp] += len(some)
                max_records -= len(some)
        if not polled:
            self.on_wait(timeout_ms / 1000)
        return polled

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self._at[tp] = bisect_left(self.log[tp], offset, key=lambda one: one.offset)

    def pause(self, target: Any, **hold: Any) -> None:  # noqa: ANN401 - as for a SafeConsumer
        self.ledger.place([scope.of(target)], **hold)

    def pause_all(self, **hold: Any) -> None:  # noqa: ANN401 - as for a SafeConsumer
        self.pause(scope.ALL, **hold)

    def resume(self, target: Any, owner: str) -> None:  # noqa: ANN401 - as for a SafeConsumer
        self.ledger.remove([(scope.of(target), owner)])

    def resume_all(self, owner: str) -> None:
        self.ledger.remove_owner(owner)

    def holds(self) -> tuple[Any, ...]:
        return tuple(self.ledger.view().holds)

    def commit(self, offsets: Mapping[Any, Any], **_limit: float) -> None:
        self.committed.update((tp, one.offset) for tp, one in offsets.items())

    def commit_async(
        self, offsets: Mapping[Any, Any], callback: Callable[..., None]
    ) -> None:
        self.commit(offsets)
        callback(offsets, None)

    # ------------------------------------------------------------ its membership

    def owned(self) -> Mapping[Any, object]:
        return self.ledger.owned()

    def position(self, tp: TopicPartition) -> int:
        at, records = self._at[tp], self.log[tp]
        return int(records[at].offset if records[at:] else records[-1].offset + 1)

    def leader_epoch(self, _: TopicPartition) -> int:
        return -1  # records from make_record() have no leader epoch

    def lagging(self) -> list[TopicPartition]:
        return [tp for tp, some in self.log.items() if self._at[tp] < len(some)]

    def deserializers(self) -> tuple[Any, Any]:
        key, value = map(_reader, self._readers)
        return key, value

    def has_any(self) -> bool:
        return False  # the consumer knows only its records

    def has(self, topic: str) -> bool:
        return any(tp.topic == topic for tp in self.log)

    def has_commit(self, _: TopicPartition) -> bool:
        return True  # committed is set to the offset of the first record

    def places(self) -> dict[TopicPartition, Any]:
        return {}  # poll() never raises

    def own_commit(self, offsets: dict[Any, Any]) -> dict[Any, Any]:
        return offsets

    def own_call(self, _name: str) -> AbstractContextManager[None]:
        return nullcontext()

    def _nothing(self, *_given: object, **_named: object) -> None:
        # Stands in for calls that have no effect without a broker.
        return

    reason_for_no_records = set_deserializers = take = release = ask_before_join = (
        lag
    ) = _nothing
    skip_no_record = is_lost = is_joining = _nothing
    ask_for_commits = moved_to = reset_number = revokes_on_join = close = _nothing


class _InlineExecutor:
    """Runs handlers on the thread that calls :meth:`work`."""

    def __init__(self, run: "_Run", decisions: Decisions, calls: Calls) -> None:
        self.slots = [Slot(_GROUP)]
        self._run, self._decisions, self._calls = run, decisions, calls
        self._called = calls.called(decisions.journal)
        self._handle = run.noting(self._called)
        self._around = ExitStack()
        self._state: Any = None

    def start(self) -> None:
        calls, stack = self._calls, self._around
        if not is_async(calls.handle):
            self._state = enter(stack, calls.lifespan)
            return
        _refuse_loop()
        loop, around = stack.enter_context(asyncio.Runner()), AsyncExitStack()
        stack.callback(lambda: loop.run(around.aclose()))
        self._state = loop.run(enter_async(around, calls.lifespan))
        context = loop.run(_current_context())
        self._handle = self._run.noting(
            partial(_run_alone, loop, context, self._called)
        )

    def wait_ready(self, _seconds: float) -> bool:
        return True

    def recall(self) -> None:
        """Do nothing, because a claimed task is always completed immediately."""

    def stop(self, _seconds: float = 0.0) -> None:
        try:
            self._around.close()
        except BaseException as error:  # noqa: BLE001 - run() raises the error
            self._decisions.fail(not_left(error))

    def work(self) -> bool:
        """Run the next task, if there is one; return whether it was for the handler."""
        task = self._decisions.queue.claim()
        if task is None:
            return False
        self._decisions.complete(self._call(task))
        return task.letter is None

    def _call(self, task: Task) -> Outcome:
        if task.letter is not None:
            return self._run.send_letter(task, self.slots[0])
        if self._run.is_endless():
            return Outcome(task=task, left=task.indexes)
        context = context_of(task, self._calls.deadline, self._state)
        given = [*task.records]
        if self._decisions.queue.policy.is_batch:
            outcome = call_batch(self._handle, task, self.slots[0], context)
        else:
            outcome = call_each(self._handle, task, self.slots[0], context, 0.0)
        self._run.result.done += [given[index] for index in outcome.finished]
        return outcome


def _run_alone(
    loop: asyncio.Runner,
    context: contextvars.Context,
    call: Handler,
    *given: object,
) -> Any:  # noqa: ANN401 - the handler's
    # As in a worker's loop, changed context variables and a cancellation affect only
    # this call.
    answers: list[Any] = []

    async def run() -> None:
        answers.append(await call(*given))

    try:
        loop.run(run(), context=context.copy())
    except asyncio.CancelledError:
        if not answers:
            raise
    return answers[0]


async def _current_context() -> contextvars.Context:
    return contextvars.copy_context()


def _refuse_loop() -> None:
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        message = (
            "an event loop runs in this thread, so coroutines cannot be run to their "
            "end: call run_worker in a plain test, or by asyncio.to_thread()"
        )
        raise WorkerSettingError(message)


@define(eq=False, slots=False)
class _Run:
    """
    Runs a worker, advances its clock, and records its calls.

    Attributes:
        result: the recorded calls and outcomes.
    """

    consumer: _Consumer
    _on_event: Hook | None
    _max_calls: int = field(validator=positive_int)
    result: WorkerRun = field(factory=WorkerRun)
    _sent: Mapping[str, Any] | None = None
    _waits: int = 0
    _is_over: bool = False

    def __attrs_post_init__(self) -> None:
        self.consumer.on_wait = self._pass_time
        self.result.committed = self.consumer.committed

    def sink_for(self, dead_letter: Any) -> Any:  # noqa: ANN401 - the worker's option, or True
        """Return the dead-letter sink for the worker's options."""
        if dead_letter is True:
            return lambda _record, _failure: None
        if isinstance(dead_letter, DeadLetter):
            return evolve(dead_letter, producer=self)
        return dead_letter

    def play(self, options: Options) -> WorkerRun:
        """Run the worker until there can be no more records."""
        consumer: Any = self.consumer
        consumer.config["max_poll_records"] = options.limits.records
        runtime = Runtime(
            clock=consumer.clock,
            wall=consumer.clock,
            choose=self._choose,
            policy={"quantum": options.batch or 1, "draw": _middle},
        )
        client = ConsumerClient(consumer, consumer)
        self._worker = worker = Worker._of(options, client, runtime)  # noqa: SLF001 - ours
        try:
            worker.run()
        except (EndlessRunError, WorkerSettingError):
            raise
        except Exception as error:  # noqa: BLE001 - the result has the error
            self.result.error = error
        self._conclude()
        return self.result

    def _choose(
        self, _name: object, decisions: Decisions, calls: Calls, _: int
    ) -> _InlineExecutor:
        self._decisions = decisions
        self._executor = _InlineExecutor(self, decisions, calls)
        return self._executor

    # ------------------------------------------------------------ while a poll waits

    def _pass_time(self, seconds: float) -> None:
        if not self._is_over:
            self.result.seconds = self.consumer.now
        if self._executor.work():
            self._waits = 0
            return
        ledger, queue = self.consumer.ledger, self._decisions.queue
        soon = min(self._decisions.turn(), ledger.seconds_to_next_expiry())
        if queue.ready:
            return
        self._waits += 1
        if self._waits > self._max_calls:
            self._fail(f"the worker waits again and again: {self.result.events[-1]}")
        if soon == math.inf:
            soon = seconds
            self._end_if_done()
        self.consumer.now += max(0.0, soon)

    def _end_if_done(self) -> None:
        # A worker that has no room for more records now may have room later.
        if self._is_over or (self.consumer.lagging() and self._waits < _WAITS):
            return
        self._end()

    def _end(self) -> None:
        self._is_over = True
        self._worker.stop()

    def is_endless(self) -> bool:
        """Stop the run if the handler was called too often; return whether it was."""
        is_endless = len(self.result.calls) >= self._max_calls
        if is_endless:
            self._fail(f"the handler was called {self._max_calls} times")
        return is_endless

    def _fail(self, what: str) -> None:
        message = f"{what}, and records still come: give max_calls if this is intended"
        self._decisions.fail(EndlessRunError(message))

    # ------------------------------------------------------------ notes

    def note(self, event: Any) -> None:  # noqa: ANN401 - any event of a worker
        """Record an event, and pass it to the given hook."""
        self.result.events.append(event)
        if self._on_event is not None:
            self._on_event(event)

    def noting(self, handle: Handler) -> Handler:
        """Return a handler that records each call of the given one."""

        def call(given: Any, context: Context) -> Any:  # noqa: ANN401 - a handler
            records = tuple(given) if isinstance(given, list) else (given,)
            note = Call(records=records, attempt=context.attempt, at=self.consumer.now)
            try:
                return handle(given, context)
            except BaseException as error:
                note = evolve(note, error=error)
                raise
            finally:
                self.result.calls.append(note)

        return call

    def send(self, _topic: str, **letter: Any) -> None:  # noqa: ANN401 - as for a producer
        """Store the letter that a producer would send."""
        self._sent = letter

    def send_letter(self, task: Task, slot: Slot) -> Outcome:
        """Call the sink, and record the dead letter if it is acknowledged."""
        sink = self._decisions.queue.policy.sink
        assert sink is not None  # noqa: S101 - a letter exists only with a sink

        def wait(record: Any, failure: Failure) -> None:  # noqa: ANN401 - upstream's
            self._sent = None
            answer = acknowledgement(sink(record, failure))
            try:
                error = answer.result(_PATIENCE)
            except TimeoutError:  # without a result the record cannot be completed
                self._end()
                raise
            if error is not None:
                raise error
            dead = DeadRecord(
                record=record,
                error=failure.error,
                attempts=failure.attempts,
                letter=self._sent,
            )
            self.result.dead_letters.append(dead)

        return call_sink(wait, task, slot)

    def _conclude(self) -> None:
        run, log = self.result, self.consumer.log.values()
        every = {_place(one): one for some in log for one in some}
        for event in run.events:
            if getattr(event, "then", None) == "skip":
                run.skipped.append(every[event.partition, event.offset])  # type: ignore[attr-defined]  # of a record
        dead = [one.record for one in run.dead_letters]
        ended = {_place(one) for one in (*run.done, *dead, *run.skipped)}
        run.left += [one for place, one in every.items() if place not in ended]
        run.is_stopped = self._decisions.is_stop_asked


def _middle() -> float:
    return 0.5


def _place(record: Any) -> tuple[str, int]:  # noqa: ANN401 - upstream's
    return partition_text(record.topic, record.partition), record.offset


def _log(records: Iterable[Any]) -> dict[TopicPartition, list[Any]]:
    log: dict[TopicPartition, list[Any]] = {}
    for record in records:
        if not isinstance(record, ConsumerRecord):
            message = (
                f"a record is one of kafka-python's, as safeconsumer.testing."
                f"make_record makes them, not {record!r:.200}"
            )
            raise WorkerSettingError(message)
        some = log.setdefault(TopicPartition(record.topic, record.partition), [])
        after = some[-1].offset + 1 if some else 0
        offset = after if record.offset is None else record.offset
        if offset < after:
            message = (
                f"{partition_text(record.topic, record.partition)} has offset {offset} "
                f"behind {after - 1}: records of a partition stand in the order of "
                f"their offsets"
            )
            raise WorkerSettingError(message)
        some.append(record._replace(offset=offset))
    if not log:
        message = "run_worker needs records: see safeconsumer.testing.make_record"
        raise WorkerSettingError(message)
    return log
