"""Holds streams from the notebook or program that runs them."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from safeconsumer.errors.base import (
    HoldSettingError,
    HookTypeError,
    NotQuietError,
    SparkSetupError,
)
from safeconsumer.events.dispatch import Hook
from safeconsumer.events.log import log_event
from safeconsumer.holds import ranges
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.blocks import check_block, next_owner
from safeconsumer.holds.explain import hold_line
from safeconsumer.holds.hold import (
    APP,
    Hold,
    checked_duration,
    checked_owner,
    checked_placer,
    checked_reason,
)
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.scope import Scope, TopicPartition
from safeconsumer.holds.view import Holds
from safeconsumer.spark import offsets
from safeconsumer.spark.bridge import Bridge, Opener
from safeconsumer.spark.queries import SparkQueries
from safeconsumer.spark.skipping import SkipRequests, checked_skip

_POLL_SECONDS = 0.05
_STARTING = "it is starting; its partitions are not known yet"


class Controller:
    """
    Holds every ``safekafka`` stream of a session, including streams that start later.

    A batch whose planning began before :meth:`pause` returned may still read held
    partitions; a batch that is planned later does not read them. Holds placed here last
    as long as the session and this process; holds that must last longer belong on the
    control topics. Once the session is stopped, the controller has no effect, and
    methods that place or list holds raise :class:`SparkSetupError`.

    Thread rules: any thread may use this.

    Attributes:
        bridge: answers the questions of the Java shim.
        is_over: returns whether the session was stopped, or the controller was closed.
        on_close: releases the bridge and the connection, in this process and in the
            JVM.
    """

    def __init__(
        self,
        open_stream: Opener,
        ledger: PauseLedger,
        queries: SparkQueries,
        *,
        skip_requests: SkipRequests,
    ) -> None:
        self._skip_requests = skip_requests
        self._ledger = ledger
        self._queries = queries
        self.bridge = Bridge(open_stream, queries.ends)
        self.is_over: Callable[[], bool] = lambda: False
        self.on_close: Callable[[], object] = lambda: None

    def pause(
        self,
        *targets: object,
        owner: str = APP,
        reason: str | None = None,
        for_: float | timedelta | None = None,
    ) -> None:
        """
        Hold partitions from the next planned batch on.

        Args:
            targets: scopes (``"orders"``, ``"orders:0-2,5"``, ``"re:ord.*"``,
                ``"@all"``), ``TopicPartition`` or compiled patterns for whole topic
                names.
            owner: the owner of the holds; two owners never lift each other's.
            reason: a text that people read.
            for_: seconds or a ``timedelta`` after which the holds expire, by the clock
                of this process.

        Raises:
            ScopeSyntaxError, TargetTypeError, HoldSettingError: nothing is held.
            SparkSetupError: the session was stopped.
        """
        self._refuse_if_over()
        self._ledger.place(
            _scopes(targets),
            owner=checked_placer(owner),
            reason=checked_reason(reason),
            for_=checked_duration(for_),
        )

    def resume(self, *targets: object, owner: str = APP) -> tuple[Hold, ...]:
        """
        Lift this owner's holds of exactly these targets.

        Args:
            targets: as for :meth:`pause`.
            owner: the owner of the holds.

        Returns:
            The holds that still cover the targets; if there are none, the targets are
            read again. If a stream cannot read its holds, one of the returned holds
            states the reason.
        """
        found = _scopes(targets)
        whose = checked_owner(owner)
        self._ledger.remove((scope, whose) for scope in found)
        return self._overlapping(found)

    def skip(
        self,
        target: object,
        *,
        to: int,
        reason: str,
        owner: str = APP,
        query: str | None = None,
    ) -> None:
        """
        Skip offsets of one partition, without changing the checkpoint's offsets.

        In the next planned batch the partition starts and ends at ``to``, so the batch
        reads no records from it, held or not. A batch that was interrupted and runs
        again reads the partition from ``to`` on. Exactly one query skips the offsets,
        once; other queries that read the partition do not skip them. The progress
        report and an event name the skipped offsets, the owner and the reason, or
        explain why the skip was refused. The checkpoint stores the skip, so a batch
        that runs again skips the same offsets.

        Args:
            target: one partition: ``"orders:3"``, or a ``TopicPartition``.
            to: the offset at which reading continues: above the offset that is read
                next, and not above the partition's end. If the topic was recreated and
                is shorter now, any offset up to its end is allowed.
            reason: a text that people read.
            owner: the owner of the skip.
            query: the name or id of the query that skips; a new checkpoint has a new
                id. None means the only query of this session that has read the
                partition, even if it has stopped since. Before any query has planned a
                batch, None means the first query that reads the partition. A skip that
                no query can apply yet causes a warning in the log, and ``skipWaiting``
                in each progress report until a query applies it.

        Raises:
            ScopeSyntaxError, TargetTypeError, HoldSettingError: nothing is skipped.
            SparkSetupError: the session was stopped; ``query`` is None, but several
                queries of the session have read the partition; or the possible queries
                read other partitions.
        """
        self._refuse_if_over()
        scope = _scopes((target,))
        skip = checked_skip(scope, to, reason, owner, query)
        self._skip_requests.request(skip)

    @contextmanager
    def held(self, *targets: object, reason: str | None = None) -> Iterator[None]:
        """
        Hold partitions during a ``with`` block, under a new owner name.

        Raises:
            HoldSettingError: there are no targets, so the block would run with nothing
                held; or :meth:`pause` raises it.
            ScopeSyntaxError, TargetTypeError, SparkSetupError: as in :meth:`pause`.
        """
        owner = next_owner()
        check_block(_scopes(targets), owner, self._ledger.view().holds)
        self.pause(*targets, owner=owner, reason=reason)
        try:
            yield
        finally:
            self.resume(*targets, owner=owner)

    def wait_quiet(self, *targets: object, timeout: float = 60.0) -> None:
        """
        Wait until no stream of this session reads, or will read, held partitions.

        A batch that was planned before a hold may still run for any length of time. A
        hold's partitions are quiet once no such batch is running. The call also waits
        for every query of this session that is starting, whatever it will read: if the
        query was stopped during a batch, it first repeats that batch, held or not. A
        query that starts after this call has returned does the same.

        Args:
            targets: as for :meth:`pause`; without any, all held partitions. A stream
                that cannot read its holds is not quiet.
            timeout: seconds.

        Raises:
            NotQuietError: the timeout has passed; the message lists each query with the
                partitions that it reads and the reason.
            HoldSettingError: the timeout is not a number of seconds.
            SparkSetupError: the session was stopped.
        """
        self._refuse_if_over()
        found = _scopes(targets)
        deadline = time.monotonic() + _checked_timeout(timeout)
        while reasons := self._not_quiet(found):
            if time.monotonic() > deadline:
                message = f"not quiet after {timeout:g} s: {'; '.join(reasons)}"
                raise NotQuietError(message)
            time.sleep(_POLL_SECONDS)

    def _not_quiet(self, found: tuple[Scope, ...]) -> list[str]:
        reasons = self._starting()
        # read the open streams last, so that a stream that opens in between is not missed
        for stream in self.bridge.streams():
            by_reason: dict[str, list[TopicPartition]] = {}
            for tp, reason in stream.not_quiet(found).items():
                by_reason.setdefault(reason, []).append(tp)
            query = stream.activity.now().query or f"stream {stream.name}"
            for reason, partitions in by_reason.items():
                named = offsets.named(tp for tp in partitions if tp[0])
                reasons.append(f"{query}: {named}{', ' if named else ''}{reason}")
        return reasons

    def _starting(self) -> list[str]:
        active = self._queries.active()
        # read the open streams after Spark's list, so that each query is in one of the
        # two lists
        made = self.bridge.made()
        if active is None:
            found = [f"{one.name or one.id}: {_STARTING}" for one in made]
            return [*found, "Spark does not tell which queries are starting"]
        not_opened = {one.id for one in made}
        return [
            f"{one.name or one.id}: {_STARTING}"
            for one in active
            if one.is_starting or one.id in not_opened
        ]

    def holds(self) -> tuple[Hold, ...]:
        """
        Return every hold that was placed here or is known to a running stream.

        A stream that cannot read its holds is represented by one hold with the reason,
        which no owner can lift. Holds from the control topics are as of the last plan
        or the last report.

        Raises:
            SparkSetupError: the session was stopped.
        """
        self._refuse_if_over()
        return self._holds()

    def _holds(self) -> tuple[Hold, ...]:
        found = {hold.key: hold for hold in self._ledger.view().holds}
        for stream in self.bridge.streams():
            for hold in stream.holds():
                found.setdefault(hold.key, hold)
        return tuple(found.values())

    def close(self) -> None:
        """
        Release the session: stop its thread, close its port, and end its holds.

        Programs that create many sessions (``newSession()``) need this: a session that
        is not closed is kept as long as this process and the session's context exist. A
        closed session can be registered again. A second call has no effect.

        Raises:
            SparkSetupError: a stream of the session is running or starting; nothing is
                closed.
        """
        if not self.is_over():
            running = [f"stream {one.name}" for one in self.bridge.streams()]
            running += self._starting()
            if running:
                message = f"stop the session's streams first: {'; '.join(running)}"
                raise SparkSetupError(message)
        self.is_over = lambda: True
        on_close, self.on_close = self.on_close, lambda: None
        on_close()

    def _refuse_if_over(self) -> None:
        if self.is_over():
            message = (
                "the session of this handle was stopped, or the handle closed, so that "
                "it holds nothing any more: take the one that "
                "safeconsumer.spark.register(spark) returns for the session of now, "
                "and place its holds there"
            )
            raise SparkSetupError(message)

    def explain(self, target: object) -> tuple[str, ...]:
        """Return one line per hold of a partition or topic, with owner, reason and end."""
        wanted = _scopes((target,))
        self._refuse_if_over()
        return tuple(map(hold_line, self._overlapping(wanted)))

    def _overlapping(self, wanted: tuple[Scope, ...]) -> tuple[Hold, ...]:
        return tuple(
            hold
            for hold in self._holds()
            if any(self._overlap(hold, scope) for scope in wanted)
        )

    def _overlap(self, hold: Hold, wanted: Scope) -> bool:
        patterns = scopes.Pattern
        if not isinstance(hold.scope, patterns) or not isinstance(wanted, patterns):
            return bool(Holds((hold,)).overlapping(wanted))
        # Two patterns overlap if a known topic matches both; if no topic is known, they
        # may overlap.
        activities = (one.activity.now() for one in self.bridge.streams())
        known = (tp for activity in activities for tp in activity.partitions)
        covered = [tp for tp in known if wanted.covers(tp)]
        of_hold = hold.scope
        return of_hold == wanted or not covered or any(map(of_hold.covers, covered))

    def lag(self) -> dict[TopicPartition, int]:
        """
        Return the partitions that the last planned batches left out, with their lag.

        If two streams read the same partition, the larger lag counts.
        """
        lags: dict[TopicPartition, int] = {}
        for stream in self.bridge.streams():
            for tp, lag in stream.held().items():
                lags[tp] = max(lag, lags.get(tp, 0))
        return lags


def _scopes(targets: Iterable[object]) -> tuple[Scope, ...]:
    return tuple(map(scopes.of, ranges.spread_targets(targets)))


def _checked_timeout(timeout: object) -> float:
    is_number = not isinstance(timeout, bool)
    # for NaN this comparison is false
    if is_number and isinstance(timeout, int | float) and timeout >= 0:
        return timeout
    message = f"timeout must be seconds, 0 or more, not {timeout!r:.60}"
    raise HoldSettingError(message)


def ledger(hooks: tuple[Hook, ...] | None = None) -> PauseLedger:
    """
    Create a ledger for holds of this process; events go to structlog by default.

    Raises:
        HookTypeError: ``hooks`` is not a sequence of functions.
    """
    if callable(hooks) or not isinstance(hooks, Iterable | None):
        message = f"hooks takes a list of functions, hooks=[function], not {hooks!r}"
        raise HookTypeError(message)
    return PauseLedger((log_event,) if hooks is None else hooks, client_id="spark")
