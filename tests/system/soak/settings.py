"""The settings of one soak: the client, the time, and where the files go."""

from pathlib import Path
from pkgutil import resolve_name

from attrs import frozen
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

from safeconsumer import SafeConsumer

TOPICS = ("soak-orders", "soak-returns", "soak-audit")
PARTITIONS = 12
GROUP = "soakers"

# The smallest that lets a frozen member be noticed between two faults.
MEMBER = {
    "session_timeout_ms": 3000,
    "heartbeat_interval_ms": 300,
    "max_poll_interval_ms": 30_000,
    "request_timeout_ms": 8000,
    "metadata_max_age_ms": 5000,
    "reconnect_backoff_max_ms": 1000,
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "max_poll_records": 200,
    "consumer_timeout_ms": 200,  # a program's poll takes as long
}
ASSIGNORS = {
    "range": RangePartitionAssignor,
    "cooperative": CooperativeStickyAssignor,
}


@frozen(kw_only=True)
class Settings:
    """
    The client of a soak, its duration and its folders.

    Attributes:
        consumer: the client under test, ``module:Class``.
        minutes: how long faults come.
        faults: the number of faults after which they end; None for no limit.
        seed: the seed of all random draws.
        rate: records per second, over all partitions.
        out: the folder of journals, logs and results.
        assignor: a key of ``ASSIGNORS``.
        workers: one member of so many is a Worker, if the client is ours; 0 for none.
    """

    consumer: str
    minutes: float
    faults: int | None
    seed: int
    rate: int
    out: Path
    assignor: str = "range"
    workers: int = 3

    @property
    def is_ours(self):
        """Whether the client has holds of its own."""
        return issubclass(resolve_name(self.consumer), SafeConsumer)

    @property
    def journals(self):
        return self.out / "journals"

    @property
    def history(self):
        """The file into which the operator writes the holds of the control topics."""
        return self.out / "history.json"

    @property
    def logs(self):
        """The folder of the members' stderr files."""
        return self.out / "logs"
