"""One run: what is worked on, by whom, how long, and where its papers are."""

from pathlib import Path
from typing import Any

from attrs import frozen

from safeconsumer.group.settings import Control

TOPIC = "churn-orders"
LETTERS = "churn-letters"
GROUP = "churn-workers"
PARTITIONS = 12
WORKERS = 3
SCOPES = (TOPIC, f"{TOPIC}:3", f"{TOPIC}:7", "re:churn-o.*", "@all")

# The smallest session that lets a killed member be missed between two departures.
MEMBER: dict[str, Any] = {
    "group_id": GROUP,
    "auto_offset_reset": "latest",
    "enable_auto_commit": False,
    "session_timeout_ms": 4000,
    "heartbeat_interval_ms": 400,
    "max_poll_interval_ms": 60_000,
    "max_poll_records": 50,
    "metadata_max_age_ms": 5000,
}
CONTROL = Control(status_topic=None, clock_skew=0.5, start_timeout=10.0)

# How a record of that number fails: 10 % do, 4 % for good.
_EVERY = 50
_FAILS = {3: 1, 13: 2, 23: 1, 33: "always", 43: "reject"}


def fails(number: int) -> int | str:
    """Tell how a record fails: in so many attempts, "always", or by "reject"."""
    return _FAILS.get(number % _EVERY, 0)


@frozen(kw_only=True)
class Settings:
    """
    What was asked for.

    Attributes:
        minutes: how long workers come and go.
        seed: of everything that is drawn.
        rate: records per second, over all partitions.
        out: where journals, logs and the result go.
        is_cooperative: whether partitions change hands one by one.
    """

    minutes: float
    seed: int
    rate: int
    out: Path
    is_cooperative: bool = False

    @property
    def journals(self) -> Path:
        """Where every process writes its journal."""
        return self.out / "journals"

    @property
    def logs(self) -> Path:
        """Where every process writes what it has to say."""
        return self.out / "logs"
