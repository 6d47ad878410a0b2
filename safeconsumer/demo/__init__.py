"""Plays what happens to consumers in production, with any client."""

from safeconsumer.demo.clients import SAFE, STOCK, Client
from safeconsumer.demo.playing import play, play_side_by_side
from safeconsumer.demo.results import (
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
from safeconsumer.demo.situations import SCENARIOS, Scenario
from safeconsumer.demo.stage import PREFIX, Setting

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
