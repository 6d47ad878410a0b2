"""One soak: what runs, how long, and where its papers are."""

import importlib
from pathlib import Path

from attrs import frozen
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

from safeconsumer import SafeConsumer

TOPICS = ("soak-orders", "soak-returns", "soak-audit")
PARTITIONS = 12
PATTERN = "^soak-.*"
GROUP = "soakers"
HISTORY = "history.json"
MEMBERS = 6

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
}


ASSIGNORS = {
    "range": RangePartitionAssignor,
    "cooperative": CooperativeStickyAssignor,
}


@frozen(kw_only=True)
class Settings:
    consumer: str  # dotted name of the client under test
    minutes: float  # how long faults come
    faults: int | None  # after how many they end, None for no limit
    seed: int  # of everything that is drawn
    rate: int  # records per second, over all partitions
    out: Path  # where journals, logs and results go
    assignor: str = "range"  # how the group shares its partitions, a key of `ASSIGNORS`
    # One member of so many is a Worker, if the client is ours; 0 for none.
    workers: int = 3

    @property
    def is_ours(self):
        """Whether the client has holds of its own."""
        module, _, name = self.consumer.rpartition(".")
        return issubclass(getattr(importlib.import_module(module), name), SafeConsumer)

    @property
    def journals(self):
        return self.out / "journals"

    @property
    def history(self):
        """Where the operator writes what the control topics say."""
        return self.out / HISTORY

    @property
    def logs(self):
        """Where every process writes what it has to say."""
        return self.out / "logs"


def client(bootstrap, name):
    return {"bootstrap_servers": bootstrap.split(","), "client_id": name}
