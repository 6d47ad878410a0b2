"""Plays what happens to consumers in production, with any client."""

from safeconsumer.testing.scenarios.catalogue import SCENARIOS, Scenario
from safeconsumer.testing.scenarios.clients import SAFE, STOCK, Client
from safeconsumer.testing.scenarios.results import (
    CancelledError,
    CannotPlayError,
    Counts,
    Failure,
    PartitionView,
    Progress,
    Report,
    Result,
    State,
)
from safeconsumer.testing.scenarios.runner import play, play_side_by_side
from safeconsumer.testing.scenarios.stage import PREFIX, Setting

__all__ = [
    "PREFIX",
    "SAFE",
    "SCENARIOS",
    "STOCK",
    "CancelledError",
    "CannotPlayError",
    "Client",
    "Counts",
    "Failure",
    "PartitionView",
    "Progress",
    "Report",
    "Result",
    "Scenario",
    "Setting",
    "State",
    "play",
    "play_side_by_side",
]
