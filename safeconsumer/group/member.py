"""Controls one consumer of a group: its reader, its gates, its own group holds."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from safeconsumer.errors.base import ControlSettingError, ControlWriteError
from safeconsumer.group import clients, patterns, wire
from safeconsumer.group.barrier import Barrier
from safeconsumer.group.broker_clock import BrokerClock
from safeconsumer.group.fold import Written
from safeconsumer.group.publisher import (
    Acknowledged,
    Change,
    changes,
    new_hold,
    publish,
)
from safeconsumer.group.reader import Reader
from safeconsumer.group.reports import (
    Client,
    ControlStatus,
    LazyProducer,
    MemberReports,
    Reporter,
)
from safeconsumer.group.settings import Control
from safeconsumer.group.state import ControlState, as_hold
from safeconsumer.group.wire import ControlHold
from safeconsumer.holds.hold import (
    GROUP,
    Hold,
    HoldKey,
    checked_duration,
    checked_owner,
    checked_reason,
)

_WRITE_TIMEOUT = 10.0
# Seconds for threads and clients to end, whatever the broker does.
_CLOSE_SECONDS = 2.0


class GroupControl:
    """
    The parts that a consumer with ``control=`` has and one without does not.

    Thread rules: every method may be called on any thread; :meth:`pause` and
    :meth:`resume` wait for the broker.
    """

    def __init__(
        self, settings: Control, client: Client, configs: Mapping[str, Any]
    ) -> None:
        group = configs.get("group_id")
        if not wire.is_group(group):
            message = f"control= needs a group_id that can be printed, not {group!r}"
            raise ControlSettingError(message)
        self._settings = settings
        self._client, self._ledger = client, client.ledger
        self._is_closed = False
        self._group = str(group)
        base = clients.connection(configs, settings.client_configs, "control")
        # Reports have a client of their own, which is dropped where their topic is
        # missing: a hold may be on its way on the other one.
        self._producer, self._reporting = (
            LazyProducer(lambda: clients.producer(base, _WRITE_TIMEOUT))
            for _ in range(2)
        )
        sources = ControlState.sources(*settings.topics)
        self._clock = BrokerClock(is_told=settings.status_topic is not None)
        self._state = ControlState(
            self._group, client.ledger, sources, settings.clock_skew, self._clock
        )
        run_after = settings.run_after if settings.unavailable == "run" else None
        self._barrier = Barrier(client.ledger, run_after)
        self._reader = Reader(settings, base, client.ledger, self._state, self._barrier)
        self._reporter = self._make_reporter(configs)

    def start(self) -> None:
        """
        Gate partitions from now on, read the control topics, and report.

        Raises:
            ControlTopicError: a control topic is unfit; no thread is left running.
        """
        self._ledger.watch(self._barrier.close)
        self._reader.start(self._settings.start_timeout)
        if self._reporter is not None:
            self._reader.on_change = self._reporter.wake
            self._ledger.wakers.append(self._reporter.wake)
            self._client.call_after_joins(self._reporter.wake)
            self._reporter.start()

    def report_soon(self) -> None:
        """Report soon, because something changed. Any thread; it does not block."""
        if self._reporter is not None:
            self._reporter.wake()

    @property
    def is_caught_up(self) -> bool:
        """Whether the control topics are read to their end; False once it is closed."""
        return self._reader.is_ready and not self._is_closed

    def close(self, seconds: float | None = None) -> None:
        """
        End all threads and clients; a second call does nothing.

        Args:
            seconds: for all of it; threads that have not ended by then are abandoned.
        """
        self._is_closed = True
        most = _CLOSE_SECONDS if seconds is None else min(seconds, _CLOSE_SECONDS)
        until = time.monotonic() + most
        if self._reporter is not None:
            self._reporter.ask_to_stop()  # it ends while the reader does
        self._reader.stop(until)
        if self._reporter is not None:
            self._reporter.stop(until)
        self._producer.close(until)
        self._reporting.close(until)

    # ------------------------------------------------------------ group holds

    def pause(
        self,
        targets: Iterable[object],
        *,
        owner: str,
        reason: str | None,
        for_: object,
    ) -> None:
        """
        Hold the targets for every member; obeyed here before it is written.

        Raises:
            ControlWriteError: a hold that it names was not acknowledged and is not held
            here.
        """
        checked_owner(owner)
        reason = checked_reason(reason)
        seconds = checked_duration(for_)
        found = tuple(str(patterns.target(one)) for one in targets)
        wanted = tuple(
            self._held_since(one)
            for one in changes(self._group, owner, found, new_hold(reason, seconds))
        )
        here = [hold for one in wanted if (hold := self._as_hold(one)) is not None]
        self._ledger.follow(self._longer(here), ())
        self._ledger.deliver()
        try:
            self._write(wanted)
        except BaseException:
            # Holds that were acknowledged after all are kept, and so are those from
            # before.
            topic = self._settings.group_topic
            self._state.restore(topic, [one.key for one in wanted])
            self._ledger.deliver()
            raise

    def resume(self, targets: Iterable[object], *, owner: str) -> tuple[Hold, ...]:
        """
        Lift this owner's group holds for every member.

        Returns:
            The holds that still cover the targets here.

        Raises:
            ControlWriteError: the holds that it names may still exist.
        """
        checked_owner(owner)
        found = tuple(patterns.target(one) for one in targets)
        wanted = changes(self._group, owner, map(str, found), None)
        self._write(wanted)
        state = self._ledger.view().holds
        remaining = {
            hold.key: hold for scope in found for hold in state.overlapping(scope)
        }
        return tuple(remaining.values())

    def _write(self, wanted: tuple[Change, ...]) -> None:
        topic = self._settings.group_topic
        try:
            done = publish(self._producer, topic, wanted, _WRITE_TIMEOUT)
        except ControlWriteError as error:
            self._absorb(error.acknowledged)
            raise
        self._absorb(done)

    def _absorb(self, done: Iterable[Acknowledged]) -> None:
        # It is taken over before it is read, so that an older record on its way here is
        # known to be older.
        self._state.absorb(self._settings.group_topic, map(self._as_written, done))
        self._ledger.deliver()

    def _as_written(self, done: Acknowledged) -> Written:
        key = wire.encode_key(done.change.key)
        at_ms = done.at_ms
        if at_ms is None or at_ms < 0:
            at_ms = int(self._ledger.now()[1] * 1000)
        return Written(key, done.value, done.offset, at_ms)

    def _longer(self, holds: Iterable[Hold]) -> list[Hold]:
        # An existing hold is not made shorter before that is acknowledged.
        there = {hold.key: hold for hold in self._ledger.view().holds}
        return [
            one
            for one in holds
            if (old := there.get(one.key)) is None
            or (
                old.deadline is not None
                and (one.deadline is None or old.deadline < one.deadline)
            )
        ]

    def _held_since(self, change: Change) -> Change:
        # A hold that is renewed again and again may be held for longer than retention.
        there = {hold.key: hold.placed_at for hold in self._ledger.view().holds}
        key = _key_of(change)
        return change.held_since(None if key is None else there.get(key))

    def _as_hold(self, change: Change) -> Hold | None:
        key = _key_of(change)
        if key is None:
            return None
        moment = self._ledger.now()
        body = change.hold or ControlHold()
        at, skew = moment[1], self._settings.clock_skew
        return as_hold(key, body, at, at, moment, skew)

    # ------------------------------------------------------------ reports

    def _make_reporter(self, configs: Mapping[str, Any]) -> Reporter | None:
        if self._settings.status_topic is None:
            return None
        told = MemberReports(
            group=self._group,
            client_id=str(configs.get("client_id") or "safeconsumer")[:200],
            look=self._look,
            client=self._client,
            skew=self._settings.clock_skew,
        )
        return Reporter(
            topic=self._settings.status_topic,
            interval=self._settings.status_interval,
            producer=self._reporting,
            tell=told.tell,
            clock=self._clock,
        )

    def _look(self) -> ControlStatus:
        return ControlStatus(
            state="ready" if self._reader.is_ready else "unavailable",
            skipped=self._state.skipped,
            applied=self._reader.positions(),
            kept=self._state.kept(),
        )


def _key_of(change: Change) -> HoldKey | None:
    read = patterns.read(change.key.scope)
    # It is never None: the key was made of a scope.
    return None if read is None else (read.scope, GROUP + change.key.owner)
