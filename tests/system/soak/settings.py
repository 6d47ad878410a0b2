"""Defines the constants of a soak's group, and parses the soak's command line."""

import argparse
import tempfile
from pathlib import Path
from pkgutil import resolve_name

from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

from safeconsumer import SafeConsumer

TOPICS = ("soak-orders", "soak-returns", "soak-audit")
PARTITIONS = 12
GROUP = "soakers"

# The session timeout is so short that the group detects a frozen member before the next
# fault.
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
    "consumer_timeout_ms": 200,  # the longest time that a program's poll waits
}
ASSIGNORS = {
    "range": RangePartitionAssignor,
    "cooperative": CooperativeStickyAssignor,
}


def parsed(arguments=None, *, about=None):
    """Parse a command line; add the folders and files of the soak."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.system.soak", description=about
    )
    add = parser.add_argument
    add(
        "--consumer",
        type=_class_name,
        default="safeconsumer:SafeConsumer",
        metavar="MODULE:CLASS",
        help="the client, such as kafka:KafkaConsumer",
    )
    add("--minutes", type=float, default=5.0)
    add("--faults", type=int, help="stop after this many")
    add("--seed", type=int, default=1)
    add("--rate", type=int, default=300, help="records per second")
    add("--out", type=Path, help="a new folder for all files")
    add("--assignor", choices=sorted(ASSIGNORS), default="range")
    add(
        "--workers",
        type=int,
        default=3,
        metavar="N",
        help="with our client, one of N members is a Worker (3); 0: none is",
    )
    given = parser.parse_args(arguments)
    given.is_ours = issubclass(resolve_name(given.consumer), SafeConsumer)
    given.out = given.out or Path(tempfile.mkdtemp(prefix="soak-"))
    given.journals, given.logs = given.out / "journals", given.out / "logs"
    given.history = given.out / "history.json"
    return given


def _class_name(text):
    try:
        kind = resolve_name(text)
    except (ImportError, AttributeError, ValueError) as error:
        message = f"{text}: {error}; write MODULE:CLASS, such as kafka:KafkaConsumer"
        raise argparse.ArgumentTypeError(message) from error
    return f"{kind.__module__}:{kind.__qualname__}"
