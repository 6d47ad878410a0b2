"""``Worker``: calls your handler on many records at a time, with bounded memory."""

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
    refuse_circle,
)
from safeconsumer.worker.signals import taking as taking_signals
from safeconsumer.worker.tracebacks import shown


class State(enum.Enum):
    """The state of a worker's life; it only moves forward."""

    NEW = "new"
    RUNNING = "running"
    DRAINING = "draining"
    CLOSED = "closed"


class Worker:
    """
    Runs a handler on every record, with bounded memory, and commits what is done.

    The thread that calls :meth:`run` polls all the time, so slow handlers never get the
    member evicted. An offset is committed once its record and all before it are done:
    handled, acknowledged as a dead letter, or skipped by your policy. After a crash or
    a rebalance records may be handled again; no record is passed over.

    Args:
        consumer: a ``SafeConsumer`` of a group, with ``enable_auto_commit=False``; the
            worker closes it when it ends. Its deserializers are called where the
            handler runs, before it, by one thread at a time: they need not be
            thread-safe. Their exceptions are failures of the record, see
            :class:`DeserializationError`. While the worker has it, every commit of
            other code (``commit``, ``commit_async``, and ``group_metadata`` for a
            producer's transactions) raises :class:`CommitRefusedError`, every other
            poll :class:`ConcurrentPollError`, and ``close``, ``unsubscribe`` and
            ``assign`` :class:`ConsumerInUseError`; nothing was done then.
        handle: called as ``handle(record, context)``, or with ``batch`` as
            ``handle(records, context)``; it must be a coroutine function with
            ``executor="asyncio"``. Its return value is ignored; an exception is a
            failure. See :class:`RetryLater`, :class:`Pause`, :class:`Reject`,
            :class:`StopWorker`, :class:`BatchFailure`.
        order: records of one ``partition``, or of one ``key`` within it, are handled
            one after the other, retries included; with ``unordered`` in any order. A
            key is the record's, as the bytes that came.
        executor: ``thread`` for handlers that wait, ``process`` for those that
            compute (importable ones, and a script needs ``if __name__ ==
            "__main__":``, as with ``multiprocessing``), ``asyncio`` for coroutines.
            A process that a handler forks ends with that call of the handler, by its
            ``sys.exit()`` or with status 1, and handles no other record.
        concurrency: how many handlers run at a time.
        batch: most records per call, of one partition; None for one by one. Not with
            ``order="key"``.
        batch_within: seconds that a batch waits for more records, counted from its
            first one, before it is handed out with fewer. It waits only while more can
            come, so not if ``limits`` are reached.
        handler_timeout: seconds that one call of the handler may take; None for no
            limit. A coroutine is cancelled, a process is ended (by SIGVTALRM) and
            replaced, and the record has failed with a :class:`HandlerTimeoutError`; a
            note of it has the stacks of the process. A thread cannot be ended: the
            worker becomes unhealthy, and a ``HandlerStalled`` event shows where the
            handler is. The same is true of a coroutine that blocks its loop.
        lifespan: called without arguments, it makes a context manager, sync, or async
            with ``executor="asyncio"``, whose value is ``context.state``. It is entered
            before the first record, where handlers run: once for threads, in the event
            loop, or in each process (there within 60 s, or ``Limits.age`` if that is
            more, imports included). It is left after the last record, in the time that
            the drain leaves; see :class:`LifespanError`.
        limits: how much may be held.
        retry: how often a record is tried, and when.
        dead_letter: the place for records that failed for good: a :class:`DeadLetter`, or
            a callable ``(record, failure)`` that returns once they are safe. A thread
            calls it in place of the handler, and again as long as it raises, after the
            waits of ``retry``. Only a :class:`DeadLetter` has ``max_ratio``: with a
            callable no share of bad records stops the worker. Key and value are the
            bytes as they came, whatever the deserializers.
        on_exhausted: without ``dead_letter``, and for records that can never be one
            (too large, the right to write is missing, :class:`Reject`), or a batch that
            is corrupt: ``stop`` the worker, ``skip`` the record, or ``block`` its lane
            until somebody acts.
        drain: the longest waits for running handlers.
        commit: when to commit.
        breaker: holds a topic while its handlers fail with errors that look like an
            outage; see :class:`Breaker`, and :class:`Pause` for handlers that know it
            themselves.
        on_event: takes every event; events become structlog lines too, unless the
            consumer has ``log=False``. Its exceptions are counted in
            :attr:`hook_failures`. If it does not return, its thread, a handler's or the
            polling one, is blocked: :meth:`healthy` names the hook after
            ``Limits.age``, and ``Report.hanging`` at the end. If the worker is asked to
            stop while its polling thread is in the hook, another thread ends it;
            ``run`` returns when the hook does.
        trace: make an OpenTelemetry span of each attempt at a record, or at a batch:
            True, or a :class:`Tracing`. The span is the current one in the handler;
            with a handler in another process only its context is current.

    Raises:
        WorkerSettingError: a setting is impossible; the message has the reason, and nothing
            was started. For ``on_event`` it is a :class:`HookTypeError`.

    Thread rules: ``run`` in one thread; all other methods on any thread, and ``stop``
    in a signal handler too.
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
            signals: signal numbers. On the first signal the worker drains and stops; on
                the second it stops at once, and the earlier signal handlers are
                restored, as they are at the end: a third signal has its earlier effect.
                Only in the main thread.

        Returns:
            How the worker ended, once the consumer is closed.

        Raises:
            RecordFailedError: a record failed for good, with ``on_exhausted="stop"``.
            DeadLetterLimitError: too many records failed for good.
            HandlersCannotRunError: handlers cannot be run, for any record;
                :class:`LifespanError` if the lifespan is the reason.
            WorkerSettingError: the topic of dead letters is consumed itself.
            WorkerStateError: it ran before, or another Worker or Pump has its consumer.
            ForkedConsumerError: it was made before this process was forked.
            JournalError: the consumer keeps a journal, which cannot be written.
            BaseException: an exception of a handler that is no ``Exception``, such as
                ``SystemExit``; also what ``poll`` raises. Before it is raised, running
                handlers end, and completed records are committed.
        """
        self._check_new()
        with taking_signals(signals, lambda _: self.stop()):
            self._state = State.RUNNING
            return self._run_to_end()

    async def serve(self, signals: Iterable[int] = ()) -> Report:
        """
        Do the same as :meth:`run`, awaited in your own event loop, which is not blocked.

        With ``executor="asyncio"`` the handlers and the lifespan run in this loop, with
        the context variables of this call; tasks that handlers leave behind continue in
        it. A separate thread polls. When this call is cancelled, the worker drains as
        after :meth:`stop`, and ``CancelledError`` is raised once it is closed; if it is
        cancelled again, running handlers are abandoned.

        Args:
            signals: as for :meth:`run`; the loop must run in the main thread then.

        Returns:
            How the worker ended, once the consumer is closed.

        Raises:
            WorkerStateError: it ran before, or another Worker or Pump has its consumer.
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
            except BaseException as error:  # noqa: BLE001 - raised where it is awaited
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
            except BaseException:  # it is cancelled: no code awaits this any more
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
            # another thread has closed it meanwhile
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
        assert self._report is not None  # noqa: S101 - it is closed
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
            refuse_circle(
                self._client.membership.consumed.has, self._options.dead_letter
            )
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
        except BaseException as raised:  # noqa: BLE001 - raised by _live()
            self._error = self._error or raised
        self._close()
        ender.join()

    def _wait_ready(self) -> None:
        # The consumer has not joined yet, so no other member waits for it; the worker
        # is alive.
        while not self._stops and not self._runner.wait_ready(_CHECK_SECONDS):
            self._engine.polled_at = self._clock()

    def stop(
        self, *, drain: bool = True, timeout: float | None = None
    ) -> Report | None:
        """
        Ask the worker to stop; any thread, and a signal handler too.

        It may be called again.

        Args:
            drain: wait for running handlers, up to ``Drain.shutdown``. A second call,
                or False, abandons handlers that still run.
            timeout: seconds to wait here until the worker is closed; None: do not wait.
                Do not wait in a handler or on its thread: the call would wait for
                itself.

        Returns:
            How the worker ended; None if it has not ended yet.
        """
        # Plain assignments: a signal handler may have interrupted this call.
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
        Return whether the worker is well, and its problems.

        The result also shows whether the loop turns at all, and names each hook that
        has not returned for ``Limits.age``, on any thread.

        Before :meth:`run` a worker is alive and not well; once closed it is neither,
        nor in a process that was forked after the worker was made.
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
        """Return the worker's numbers at this moment. Any thread."""
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
        # A loop that has ended on purpose must not cause an alarm.
        is_over = state is State.CLOSED and not self._failure
        if state is State.NEW or is_over:
            return None
        return self._engine.last_poll_at()

    @property
    def consumer(self) -> Any:  # noqa: ANN401 - as it was given
        """The consumer of the worker."""
        return self._options.consumer

    def running(self) -> dict[TopicPartition, list[int]]:
        """
        Return the offsets of the records that handlers work on, by partition.

        Once a hold is in force, no other record of its partitions begins.
        """
        return health.running_offsets(
            self._runner.slots, is_batch=self._options.is_batch
        )

    @property
    def hook_failures(self) -> Mapping[str, int]:
        """
        The number of errors of ``on_event``, by its ``repr``; the log has the first.

        Events that no hook got, as a hook did not return at the end, count too.

        Under ``trace`` it counts spans that could not be made, ended or passed on.
        ``stats()`` and the metric ``worker_hook_failures_total`` have the sum.
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
        # another thread has ended the worker, or the worker fails
        with contextlib.suppress(ValueError):
            observers.remove(self._decisions.obey)

    def _work(self) -> None:
        self._check_stop()  # a worker that is stopped before it begins joins no group
        while not self._is_finished():
            try:
                self._turn()
            except TakenOver:
                raise
            except BaseException as error:
                # The worker still waits for running handlers, unless a second Ctrl-C
                # comes.
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
        # The stop may have been requested while this thread waited for a commit.
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
        # The polling thread is blocked in a hook, at any step of a turn: each step below
        # must be possible after any of those steps, and twice.
        try:
            self._check_stop()
            while self._report is None and not self._is_finished():
                self._engine.rest()
            if self._report is None:
                self._close()
        except BaseException as error:  # noqa: BLE001 - raised by _outcome()
            self._error = self._error or error
        finally:
            self._client.release()
            self._name_hook()
            self._emit.takeover.over.set()
            self._closed.set()
            self._answer_taken_over()

    def _hanging(self) -> Hook | None:
        # The polling thread's hook comes first: another thread has ended the worker for it.
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
            with self._emit.postponing():  # no hook runs between a stop and this commit
                committed = self._engine.conclude(max(_LEAVE_SECONDS, left))
        finally:
            if not self._emit.takeover.over.is_set():
                self._leave(end, committed=committed)

    def _leave(self, end: float, *, committed: bool) -> None:
        self._stop_following_holds()
        left = end - _LEAVE_SECONDS - self._clock()
        self._runner.stop(min(max(_LEAVE_SECONDS, left), LONGEST))
        with contextlib.suppress(Exception):  # the error was reported before
            self._client.lift_expiring()
        with contextlib.suppress(Exception):  # as above
            left = max(_LEAVE_SECONDS, end - self._clock())
            self._client.leave(min(_END_SECONDS, left), self._engine.dropped_at_end)
        self._report_end(committed=committed)

    def _end_by(self) -> float:
        # The time that the wait for handlers leaves is for the last commit, and for
        # leaving the group.
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


# Seconds. Everything after the drain takes no longer than this, whatever the broker
# does; the commit, ending the handlers' threads or processes, and leaving the group get
# this much each.
_END_SECONDS = 2.0
_LEAVE_SECONDS = 0.5
_FORKED = (
    "this worker was made before this process was forked, and can run in its parent only: "
    "make the consumer and the worker in the process that uses them"
)
# Seconds between two checks whether a worker that has not begun yet must stop.
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

    with contextlib.suppress(RuntimeError):  # the loop is closed: no code awaits it
        loop.call_soon_threadsafe(settle)
