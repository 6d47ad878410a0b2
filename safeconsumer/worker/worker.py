"""Defines ``Worker``, which calls your handler with each record, in bounded memory."""

import asyncio
import contextlib
import enum
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from attrs import evolve
from kafka.structs import TopicPartition

from safeconsumer._waits import InterruptibleEvent
from safeconsumer.errors.base import WorkerStateError
from safeconsumer.errors.kafka_python import ForkedConsumerError
from safeconsumer.events.dispatch import Hook, name_of
from safeconsumer.events.takeover import STUCK_SECONDS, TakenOver
from safeconsumer.worker import events as worker_events
from safeconsumer.worker import forks, health
from safeconsumer.worker.breaker import Breaker
from safeconsumer.worker.calls import LONGEST
from safeconsumer.worker.client import ConsumerClient
from safeconsumer.worker.dead_letters import Sink
from safeconsumer.worker.executors import ExecutorName
from safeconsumer.worker.executors.aio import Coroutines
from safeconsumer.worker.handlers import Handle, HandleBatch, MakeLifespan
from safeconsumer.worker.health import Report, Stats, snapshot
from safeconsumer.worker.options import Options, OrderName, Runtime, build
from safeconsumer.worker.queue import OnExhausted
from safeconsumer.worker.settings import (
    Commit,
    DeadLetter,
    Drain,
    Limits,
    Retry,
    Tracing,
    refuse_loop,
)
from safeconsumer.worker.signals import taking as taking_signals
from safeconsumer.worker.tracebacks import shown


class State(enum.Enum):
    """The state of a worker; it only moves forward."""

    NEW = "new"
    RUNNING = "running"
    DRAINING = "draining"
    CLOSED = "closed"


class Worker:
    """
    Calls a handler with each record, in bounded memory, and commits finished records.

    The thread that calls :meth:`run` polls all the time, so the member is never evicted
    because a handler is slow. An offset is committed once its record and all earlier
    records are done: handled, acknowledged as a dead letter, or skipped by your policy.
    After a crash or a rebalance records may be handled again, but no record is skipped.

    Args:
        consumer: a ``SafeConsumer`` of a group, with ``enable_auto_commit=False``; the
            worker closes it at the end. Its deserializers are called before the handler
            and in the same thread or process, by one thread at a time, so they need not
            be thread-safe. Their exceptions are failures of the record, see
            :class:`DeserializationError`. While the worker uses the consumer, every
            commit of other code (``commit``, ``commit_async``, and ``group_metadata``
            for a producer's transactions) raises :class:`CommitRefusedError`, every
            other poll raises :class:`ConcurrentPollError`, and ``close``,
            ``unsubscribe`` and ``assign`` raise :class:`ConsumerInUseError`; a refused
            call has no effect.
        handle: called as ``handle(record, context)``, or with ``batch`` as
            ``handle(records, context)``; must be a coroutine function with
            ``executor="asyncio"``. Its return value is ignored; an exception is a
            failure. See :class:`RetryLater`, :class:`Pause`, :class:`Reject`,
            :class:`StopWorker`, :class:`BatchFailure`.
        order: with ``partition`` or ``key``, records of the same partition, or with the
            same key in a partition, are handled one after the other, retries included.
            With ``unordered``, records are handled in any order. The key is the one in
            the record's original bytes.
        executor: ``thread`` for handlers that mostly wait, ``process`` for handlers
            that compute, ``asyncio`` for coroutines. With ``process`` the handler must
            be importable, and a script needs ``if __name__ == "__main__":``, as with
            ``multiprocessing``. A process that a handler forks exits when that handler
            call ends, with the status of its ``sys.exit()`` or with 1, and handles no
            other record.
        concurrency: how many handlers run at a time.
        batch: the maximum number of records per call, all of the same partition; None
            for single records. Not allowed with ``order="key"``.
        batch_within: seconds for which a batch that is not full waits for more records,
            counted from its first record. A batch waits only as long as more records
            can arrive, so not when ``limits`` are reached.
        handler_timeout: seconds that one call of the handler may take; None for no
            limit. At the limit a coroutine is cancelled, and a process is ended (by
            SIGVTALRM) and replaced; the record fails with a
            :class:`HandlerTimeoutError`, which has a note with the stacks of the
            process. A thread cannot be ended; instead the worker becomes unhealthy, and
            a ``HandlerStalled`` event shows where the handler is stuck. The same
            applies to a coroutine that blocks its loop.
        lifespan: a function without arguments that returns a context manager, whose
            value becomes ``context.state``. The context manager may be async with
            ``executor="asyncio"``. The lifespan is entered before the first record:
            once for all threads, once in the event loop, or once in each process. A
            process must have entered it, imports included, within 60 s, or within
            ``Limits.age`` if that is longer. The lifespan is exited after the last
            record, within the rest of the drain's time; see :class:`LifespanError`.
        limits: how many records and bytes may be held in memory.
        retry: how often a failed record is tried, and when.
        dead_letter: the target for records that failed for good: a :class:`DeadLetter`,
            or a callable ``(record, failure)`` that returns once the record is stored
            safely. A thread calls it in place of the handler, and calls it again, with
            the waits of ``retry`` in between, until it no longer raises. Only a
            :class:`DeadLetter` has ``max_ratio``; with a callable the worker does not
            stop, however many records fail. The record's key and value are the original
            bytes, whatever the deserializers are.
        on_exhausted: the policy if there is no ``dead_letter``, for a corrupt batch,
            and for records that can never become dead letters (too large, no permission
            to write, :class:`Reject`): ``stop`` the worker, ``skip`` the record, or
            ``block`` its lane until somebody intervenes.
        drain: the longest waits for running handlers.
        commit: when to commit.
        breaker: holds a topic while its records fail with errors that look like an
            outage; see :class:`Breaker`. A handler that detects an outage itself raises
            :class:`Pause`.
        on_event: called with every event. Events also become structlog lines, unless
            the consumer has ``log=False``. Exceptions of ``on_event`` are counted in
            :attr:`hook_failures`. A call that does not return blocks its thread, which
            is the polling thread or a handler's. :meth:`healthy` names the hook after
            ``Limits.age``, and ``Report.hanging`` names it at the end. If the worker is
            asked to stop while its polling thread is in the hook, another thread closes
            the worker, but ``run`` returns only when the hook does.
        trace: True, or a :class:`Tracing`, to make an OpenTelemetry span for each
            attempt at a record or a batch. The span is the current span in the handler;
            in another process only the span's context is current.

    Raises:
        WorkerSettingError: a setting is invalid; the message gives the reason, and
            nothing was started. For ``on_event`` the error is a :class:`HookTypeError`.

    Thread rules: call ``run`` on one thread. All other methods may be called on any
    thread, and ``stop`` even in a signal handler.
    """

    def __init__(  # noqa: PLR0913 - one keyword for each option, all with defaults
        self,
        consumer: Any,  # noqa: ANN401 - checked
        handle: Handle | HandleBatch,
        *,
        order: OrderName = "partition",
        executor: ExecutorName = "thread",
        concurrency: int = 8,
        batch: int | None = None,
        batch_within: float = 0.0,
        handler_timeout: float | None = None,
        lifespan: MakeLifespan | None = None,
        limits: Limits = Limits(),
        retry: Retry = Retry(),
        dead_letter: DeadLetter | Sink | None = None,
        on_exhausted: OnExhausted = "stop",
        drain: Drain = Drain(),
        commit: Commit = Commit(),
        breaker: Breaker | None = None,
        on_event: Hook | None = None,
        trace: bool | Tracing = False,
    ) -> None:
        options = Options(
            consumer=consumer,
            handle=handle,
            order=order,
            executor=executor,
            concurrency=concurrency,
            batch=batch,
            batch_within=batch_within,
            handler_timeout=handler_timeout,
            lifespan=lifespan,
            limits=limits,
            retry=retry,
            dead_letter=dead_letter,
            on_exhausted=on_exhausted,
            drain=drain,
            commit=commit,
            breaker=breaker,
            on_event=on_event,
            trace=trace,
        )
        self._build(options, ConsumerClient(consumer), Runtime())

    @classmethod
    def _of(
        cls, options: Options, client: ConsumerClient, runtime: Runtime
    ) -> "Worker":
        worker = cls.__new__(cls)
        worker._build(options, client, runtime)  # noqa: SLF001 - as __init__ does
        return worker

    def _build(
        self, options: Options, client: ConsumerClient, runtime: Runtime
    ) -> None:
        self._options = options
        self._client, self._clock = client, runtime.clock
        parts = build(options, client, runtime)
        self._emit, self._engine = parts.emit, parts.engine
        self._decisions, self._runner = parts.decisions, parts.runner
        self._tracer = parts.tracer
        self._process = forks.process()
        self._state = State.NEW
        self._stops = 0
        self._given_up = 0
        self._stop_requested_at: float | None = None
        self._stop_at: float | None = None
        self._error: BaseException | None = None
        self._ending = InterruptibleEvent()
        self._answer_taken_over: Callable[[], None] = _nothing
        self._closed = InterruptibleEvent()
        self._report: Report | None = None

    # ------------------------------------------------------------ its life

    def run(self, signals: Iterable[int] = ()) -> Report:
        """
        Work until :meth:`stop` is called, or an error stops the worker.

        Args:
            signals: signal numbers, only for the main thread. On the first signal the
                worker drains and stops. On the second signal it stops immediately, and
                the earlier signal handlers are restored, so that a third signal has its
                original effect. They are also restored at the end of the run.

        Returns:
            A report of the run, once the consumer is closed.

        Raises:
            RecordFailedError: a record failed for good, with ``on_exhausted="stop"``.
            DeadLetterLimitError: the share of records that failed for good is too high.
            HandlersCannotRunError: handlers cannot run for any record;
                :class:`LifespanError` if the lifespan is the reason.
            WorkerSettingError: the consumer consumes the dead-letter topic.
            WorkerStateError: the worker ran before, or another Worker or Pump uses its
                consumer.
            ForkedConsumerError: the worker was created before this process was forked.
            JournalError: the consumer's journal cannot be written.
            BaseException: a handler's exception that is not an ``Exception``, such as
                ``SystemExit``; or any exception that ``poll`` raises. Before the
                exception is raised, running handlers are drained and completed records
                are committed.
        """
        self._check_new()
        with taking_signals(signals, lambda _: self.stop()):
            self._state = State.RUNNING
            return self._run_to_end()

    async def serve(self, signals: Iterable[int] = ()) -> Report:
        """
        Do the same as :meth:`run`, but awaitable in your own event loop.

        With ``executor="asyncio"`` the handlers and the lifespan run in your loop, with
        the context variables of this call. Tasks that handlers leave behind continue in
        the loop. A separate thread polls. When the call is cancelled, the worker drains
        as after :meth:`stop`, and ``CancelledError`` is raised once the worker is
        closed. A second cancellation abandons running handlers.

        Args:
            signals: as for :meth:`run`; if any are given, the loop must run in the main
                thread.

        Returns:
            A report of the run, once the consumer is closed.

        Raises:
            WorkerStateError: the worker ran before, or another Worker or Pump uses its
                consumer.
            BaseException: as for :meth:`run`.
        """
        self._check_new()
        loop = asyncio.get_running_loop()
        if isinstance(self._runner, Coroutines):
            self._runner.run_in(loop)
        ended: asyncio.Future[Report] = loop.create_future()

        def live() -> None:
            try:
                report = self._run_to_end()
            except BaseException as error:  # noqa: BLE001 - raised to the awaiting caller
                _answer(loop, ended, error)
            else:
                _answer(loop, ended, report)

        self._answer_taken_over = lambda: _answer(loop, ended, self._outcome())
        with taking_signals(signals, lambda _: self.stop()):
            self._state = State.RUNNING
            threading.Thread(
                target=live, name="safeconsumer-worker-poll", daemon=True
            ).start()
            return await self._until_closed(ended)

    async def _until_closed(self, ended: "asyncio.Future[Report]") -> Report:
        cancelled: asyncio.CancelledError | None = None
        while not ended.done():
            try:
                await asyncio.wait([ended])
            except asyncio.CancelledError as error:
                cancelled = error
                self.stop()
            except BaseException:  # nothing awaits the worker any more
                self.stop()
                raise
        if cancelled is not None:
            raise cancelled from ended.exception()
        return ended.result()

    @property
    def _is_in_child(self) -> bool:
        return self._process != forks.process()

    def _check_new(self) -> None:
        if self._is_in_child:
            raise ForkedConsumerError(_FORKED)
        if self._state is not State.NEW:
            message = "a Worker runs once: make another one, with another consumer"
            raise WorkerStateError(message)
        if self._client.membership.is_taken:
            message = "another Worker or Pump uses this consumer: give each its own"
            raise WorkerStateError(message)

    def _run_to_end(self) -> Report:
        try:
            # TakenOver: another thread has closed the worker
            with contextlib.suppress(TakenOver):
                self._run_parts()
        finally:
            self._client.release()
        outcome = self._outcome()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    @property
    def _failure(self) -> BaseException | None:
        return self._error or self._decisions.fatal

    def _outcome(self) -> Report | BaseException:
        error = self._failure
        if error is not None:
            return error
        assert self._report is not None  # noqa: S101 - the worker is closed
        return self._report

    def _run_parts(self) -> None:
        ender = threading.Thread(
            target=self._end_if_a_hook_hangs,
            args=(threading.get_ident(),),
            name="safeconsumer-worker-end",
            daemon=True,
        )
        try:
            self._client.watch_hooks(self._emit.takeover)
            ender.start()
            self._follow_holds()
            refuse_loop(self._client.membership.consumed.has, self._options.dead_letter)
            self._client.membership.set_deserializers(None, None)
            self._client.membership.take(self._client)
            if self._client.journal is not None:
                self._client.journal.note_worker(self._options.order, self.running)
            self._engine.begin(self._decisions)
            self._runner.start()
            self._wait_ready()
            self._work()
        except TakenOver:
            raise
        except BaseException as raised:  # noqa: BLE001 - raised by _run_to_end()
            self._error = self._error or raised
        self._close()
        ender.join()

    def _wait_ready(self) -> None:
        # The consumer has not joined the group yet, so no other member waits for it.
        # Until it joins, the worker counts as alive.
        while not self._stops and not self._runner.wait_ready(_CHECK_SECONDS):
            self._engine.polled_at = self._clock()

    def stop(
        self, *, drain: bool = True, timeout: float | None = None
    ) -> Report | None:
        """
        Ask the worker to stop. Any thread or signal handler may call this.

        The method may be called more than once.

        Args:
            drain: whether to wait for running handlers, up to ``Drain.shutdown``.
                False, or a second call of this method, abandons handlers that are still
                running.
            timeout: seconds to wait until the worker is closed; None to return
                immediately. Never wait in a handler or on the worker's own thread,
                because the wait would prevent the worker from closing.

        Returns:
            A report of the run, or None if the worker has not been closed yet.
        """
        # Uses only plain assignments, because a signal handler may call this method
        # while it has interrupted another call of it.
        if self._stop_requested_at is None:
            self._stop_requested_at = self._clock()
        self._stops += 1 if drain else 2
        self._ending.set()
        if timeout is not None and self._state is not State.NEW:
            self._closed.wait(timeout)
        return self._report

    # ------------------------------------------------------------ queries

    def healthy(self) -> health.Health:
        """
        Return whether the worker is healthy, and list its problems.

        The result also shows whether the worker is still polling, and names each hook
        that has not returned for ``Limits.age``, on whatever thread.

        Before :meth:`run` a worker is alive but not healthy. A closed worker is
        neither; nor is a worker in a process that was forked after the worker was
        created.
        """
        state = self._state
        if self._is_in_child:
            return health.Health(is_alive=False, reasons=(_FORKED,))
        if state is State.NEW:
            return health.Health(is_alive=True, reasons=("the worker has not begun",))
        if state is State.CLOSED:
            return health.ended(self._failure)
        age = self._options.limits.age
        engine = self._engine
        problems = [
            *self._decisions.outages.problems(),
            *engine.commits.problems(age),
            *engine.unreadable.problems(age),
            *self._emit.problems(age),
        ]
        return health.examine(engine, self._runner.slots, age, problems=problems)

    def stats(self) -> Stats:
        """Return the worker's current numbers. Any thread may call this."""
        state = self._state
        return snapshot(
            state.value,
            self._engine,
            self._decisions,
            lag=self._client.membership.lag(),
            alarms=self._emit.counts.alarms,
            hook_failures=sum(self.hook_failures.values()),
            last_poll_at=self._last_poll_at(state),
        )

    def _last_poll_at(self, state: State) -> float | None:
        # After a requested stop, an old time of the last poll must not cause an alarm.
        is_over = state is State.CLOSED and not self._failure
        if state is State.NEW or is_over:
            return None
        return self._engine.last_poll_at()

    @property
    def consumer(self) -> Any:  # noqa: ANN401 - as it was given
        """The consumer that was passed to the worker."""
        return self._options.consumer

    def running(self) -> dict[TopicPartition, list[int]]:
        """
        Return the offsets of the records that handlers work on, by partition.

        Once a hold is in force, handlers start no further records of the held partitions.
        """
        return health.running_offsets(
            self._runner.slots, is_batch=self._options.is_batch
        )

    @property
    def hook_failures(self) -> Mapping[str, int]:
        """
        How many exceptions ``on_event`` raised, by the hook's ``repr``.

        Only a hook's first exception is logged. Events that were never passed to the
        hook, because it did not return when the worker stopped, count, too.

        The key ``trace`` counts the spans that could not be made, ended or passed on.
        ``stats()`` and the metric ``worker_hook_failures_total`` show the sum of
        these numbers.
        """
        failures = self._emit.failures
        if self._tracer is not None and self._tracer.failures:
            failures["trace"] = self._tracer.failures
        return failures

    def __repr__(self) -> str:
        kept = self._engine.kept
        return f"Worker({self._state.value}, {kept.records} held, {kept.done} done)"

    # ------------------------------------------------------------ inside

    def _follow_holds(self) -> None:
        self._client.membership.busy = self._engine.kept.busy
        self._client.membership.ledger.observers.append(self._decisions.obey)

    def _stop_following_holds(self) -> None:
        observers = self._client.membership.ledger.observers
        # already removed, or never added because the start failed
        with contextlib.suppress(ValueError):
            observers.remove(self._decisions.obey)

    def _work(self) -> None:
        self._check_stop()  # if it was stopped before its start, it joins no group
        while not self._is_finished():
            try:
                self._turn()
            except TakenOver:
                raise
            except BaseException as error:
                # The worker still drains running handlers, unless a second Ctrl-C
                # arrives.
                if self._error is not None and not isinstance(error, Exception):
                    raise
                self._error = self._error or error
                self._engine.rest()
            self._check_stop()

    def _check_stop(self) -> None:
        if self._state is not State.RUNNING or not self._must_stop():
            return
        self._state = State.DRAINING
        self._ending.set()
        # Time counts from the request to stop, which may have arrived while this thread
        # waited for a commit.
        now = self._clock()
        self._stop_at = (
            now if self._stop_requested_at is None else self._stop_requested_at
        )
        self._engine.departures.stop(
            max(0.0, self._stop_at + self._options.drain.shutdown - now)
        )
        self._runner.recall()

    def _turn(self) -> None:
        self._engine.due_in = self._decisions.turn()
        self._engine.turn()
        health.report_stalls(self._runner.slots, self._options.limits.age, self._emit)

    def _must_stop(self) -> bool:
        is_asked = self._stops or self._decisions.is_stop_asked
        return bool(is_asked) or self._failure is not None

    def _is_finished(self) -> bool:
        return self._state is State.DRAINING and (
            self._stops > 1 or self._engine.departures.is_drained
        )

    def _end_if_a_hook_hangs(self, poller: int) -> None:
        self._ending.wait()
        while not self._closed.wait(STUCK_SECONDS):
            if self._emit.takeover.takes(poller):
                self._end_for_poller()
                return

    def _end_for_poller(self) -> None:
        # The polling thread is blocked in a hook, at any point of the worker's loop.
        # Each call below must therefore be safe at any such point, and safe to repeat.
        try:
            self._check_stop()
            while self._report is None and not self._is_finished():
                self._engine.rest()
            if self._report is None:
                self._close()
        except BaseException as error:  # noqa: BLE001 - returned by _outcome()
            self._error = self._error or error
        finally:
            self._client.release()
            self._name_hook()
            self._emit.takeover.over.set()
            self._closed.set()
            self._answer_taken_over()

    def _hanging(self) -> Hook | None:
        # If the polling thread is in a hook, that hook is reported first, because it is
        # why another thread closes the worker.
        takeover = self._emit.takeover
        if takeover.hook is not None:
            return takeover.hook
        return next((hook for hook, _ in takeover.stuck(STUCK_SECONDS)), None)

    def _name_hook(self) -> None:
        hook = self._hanging()
        if self._report is not None and hook is not None:
            self._report = evolve(self._report, hanging=name_of(hook))

    def _close(self) -> None:
        committed = False
        self._ending.set()
        self._decisions.end()
        self._given_up = sum(map(len, self.running().values()))
        end = self._end_by()
        try:
            left = end - 2 * _LEAVE_SECONDS - self._clock()
            with self._emit.postponing():  # no hook runs before the last commit
                committed = self._engine.conclude(max(_LEAVE_SECONDS, left))
        finally:
            if not self._emit.takeover.over.is_set():
                self._leave(end, committed=committed)

    def _leave(self, end: float, *, committed: bool) -> None:
        self._stop_following_holds()
        left = end - _LEAVE_SECONDS - self._clock()
        self._runner.stop(min(max(_LEAVE_SECONDS, left), LONGEST))
        with contextlib.suppress(Exception):  # the first error was already reported
            self._client.lift_expiring()
        with contextlib.suppress(Exception):  # the worker must finish in any case
            left = max(_LEAVE_SECONDS, end - self._clock())
            self._client.leave(min(_END_SECONDS, left), self._engine.dropped_at_end)
        self._report_end(committed=committed)

    def _end_by(self) -> float:
        # If the wait for handlers ends early, the rest of its time may be used for the
        # last commit and for leaving the group.
        if self._stop_at is None or self._stops > 1:
            return self._clock() + _END_SECONDS
        return self._stop_at + self._options.drain.shutdown + _END_SECONDS

    def _report_end(self, *, committed: bool) -> None:
        decisions, engine, error = self._decisions, self._engine, self._failure
        since = self._clock() if self._stop_at is None else self._stop_at
        self._report = Report(
            done=engine.kept.done,
            dropped=engine.departures.dropped.total(),
            dropped_by_reason=dict(engine.departures.dropped),
            refetched=engine.brakes.refetched,
            given_up=self._given_up,
            dead_letters=decisions.dead_letters,
            skipped=decisions.skipped,
            gone=engine.gone,
            committed=committed,
            seconds=self._clock() - since,
        )
        self._state = State.CLOSED
        self._emit(
            worker_events.WorkerStopped,
            done=self._report.done,
            dropped=self._report.dropped,
            committed=committed,
            error=None if error is None else shown(error),
        )
        self._name_hook()
        self._closed.set()


# The maximum number of seconds for all steps after the drain, whatever the broker does,
# and the minimum for each step. The steps are the commit, stopping the handlers'
# threads or processes, and leaving the group.
_END_SECONDS = 2.0
_LEAVE_SECONDS = 0.5
_FORKED = (
    "this worker was made before this process was forked, and can run only in the parent: "
    "make the consumer and the worker in the process that uses them"
)
# How often, in seconds, a worker that is still starting checks whether it must stop.
_CHECK_SECONDS = 0.1


def _nothing() -> None: ...


def _answer(
    loop: asyncio.AbstractEventLoop,
    ended: "asyncio.Future[Report]",
    answer: Report | BaseException,
) -> None:
    def settle() -> None:
        if ended.done():
            return
        if isinstance(answer, BaseException):
            ended.set_exception(answer)
        else:
            ended.set_result(answer)

    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(settle)
