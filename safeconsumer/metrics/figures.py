"""Reads a consumer's values for metrics."""

import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

from safeconsumer.events.counts import Counts
from safeconsumer.holds.hold import KINDS, kind_of
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.view import View

Value: TypeAlias = (
    "float | Mapping[str, float] | Mapping[tuple[str, str], float] | None"
)
"""
One number, or one for each value of one or two labels; None if there is no value now.
"""


@runtime_checkable
class OtherMember(Protocol):
    """
    The values of a ``safeconsumer.clients`` consumer that metrics read.

    Any thread may read them.
    """

    ledger: PauseLedger
    client_id: str | None
    group_id: str | None
    is_closed: bool

    @property
    def is_caught_up(self) -> bool | None:
        """Whether the holds topic was read to its end; None if there is no holds topic."""

    def polled_at(self) -> float | None:
        """Return when the program last requested records, in seconds since the epoch."""


class Figures:
    """
    Reads a consumer's values for the table of metrics.

    Reading does not take a lock and does not change anything. The values are those of
    the state that was last applied, so an expired hold still counts until the
    consumer's next check.

    Thread rules: any thread may use this, even during ``poll`` and after ``close``.

    Args:
        consumer: an adopted consumer.
    """

    def __init__(self, consumer: Any) -> None:  # noqa: ANN401 - upstream has no types
        # kafka-python's metrics outlive a consumer that is dropped without close(), and
        # must not keep the consumer alive.
        self._consumer = weakref.ref(consumer)
        self._ledger: PauseLedger = consumer._safe_ledger

    @property
    def has_control(self) -> bool:
        """Whether the consumer obeys control topics."""
        return self._is_control_ready() is not None

    def _is_control_ready(self) -> bool | None:
        control = getattr(self._consumer(), "_safe_control", None)
        return None if control is None else bool(control.is_caught_up)

    def read(self, name: str) -> Value:
        """Return the value of a metric, by its name in the table."""
        return _READ[name](self)

    def _view(self) -> View:
        return self._ledger.peek()

    def _counts(self) -> Counts:
        return self._ledger.counts

    def _parked(self) -> float:
        consumer = self._consumer()
        return (
            0.0 if consumer is None else float(consumer._fetcher.buffers.bytes_parked())
        )

    def _polled_at(self) -> float | None:
        polling = getattr(self._consumer(), "_safe_polling", None)
        return None if polling is None else polling.polled_at()

    def _caught_up(self) -> float | None:
        # A consumer that was closed or dropped must not look like an outage.
        if getattr(self._consumer(), "_closed", True):
            return None
        return float(bool(self._is_control_ready()))

    def _gated(self) -> float:
        return len(self._ledger.control_gates())

    def _hook_failures(self) -> float:
        return sum(self._ledger.dispatcher.failures.values())

    def _holds(self) -> dict[str, float]:
        # Count the holds of each owner first, because ten thousand holds may have few
        # owners.
        by_kind: dict[str, float] = dict.fromkeys(KINDS, 0)
        for owner, count in Counter(hold.owner for hold in self._view().holds).items():
            by_kind[kind_of(owner)] += count
        return by_kind


class OtherFigures(Figures):
    """
    Reads the values of a consumer of another library, some of which are missing.

    Args:
        member: the consumer's values.
    """

    def __init__(self, member: OtherMember) -> None:
        self._member, self._ledger = member, member.ledger

    def read(self, name: str) -> Value:
        """Return the value of a metric; None if the library does not show it."""
        return None if name in _HIDDEN_METRICS else super().read(name)

    def _is_control_ready(self) -> bool | None:
        return self._member.is_caught_up

    def _polled_at(self) -> float | None:
        return self._member.polled_at()

    def _caught_up(self) -> float | None:
        return None if self._member.is_closed else float(bool(self._is_control_ready()))


# The metrics about fetched data, which other libraries do not expose.
_HIDDEN_METRICS = {
    "parked_bytes",
    "purged_bytes_total",
    "parked_dropped_bytes_total",
    "deleted_unread_offsets_total",
}

_READ: dict[str, Callable[[Figures], Value]] = {
    "consumer_assigned_partitions": lambda one: sum(
        map(len, one._view().assigned.values())
    ),
    "consumer_quiet_partitions": lambda one: len(one._view().quiet),
    "consumer_last_poll_timestamp_seconds": lambda one: one._polled_at(),
    "parked_bytes": Figures._parked,
    "holds": Figures._holds,
    "hold_changes_total": lambda one: one._counts().hold_changes,
    "rebalances_total": lambda one: one._counts().rebalances,
    "partition_moves_total": lambda one: one._counts().moves,
    "purged_bytes_total": lambda one: one._counts().purged_bytes,
    "parked_dropped_bytes_total": lambda one: one._counts().parked_dropped_bytes,
    "deleted_unread_offsets_total": lambda one: one._counts().deleted_unread,
    "alarms_total": lambda one: one._counts().alarms,
    "hook_failures_total": Figures._hook_failures,
    "control_ready": lambda one: one._caught_up(),
    "control_gated_partitions": Figures._gated,
    "control_skipped_records_total": lambda one: one._counts().control_skipped,
    "control_resets_total": lambda one: one._counts().control_resets,
    "gates_opened_unread_total": lambda one: one._counts().gates_opened_unread,
}
