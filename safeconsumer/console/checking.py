"""Runs the checks of ``safeconsumer doctor`` for its page, worst first."""

from collections.abc import Callable, Sequence
from contextlib import suppress

from kafka.errors import KafkaError

from safeconsumer.console.state import State
from safeconsumer.errors import ControlTopicError
from safeconsumer.group import findings
from safeconsumer.group.verdicts import BAD, LEVELS, NOTE, Finding, Level
from safeconsumer.holds.explain import counted


def rows(
    state: State, group: str | None, is_wanted: Callable[[], bool]
) -> list[Finding]:
    """
    Run the checks, and return the findings; the last one may say what kept it from more.

    It uses a separate connection, so placing a hold never waits for it.

    Args:
        state: the console's state.
        group: the group whose members are checked; None to check no members.
        is_wanted: returns whether the client still waits; if not, the checks stop.
    """
    found: list[Finding] = []
    with state.connect() as operator, suppress(ControlTopicError, KafkaError, OSError):
        for one in findings.findings(operator, group):
            found.append(one)
            if not is_wanted():
                break
    return sorted(found, key=lambda one: LEVELS.index(one.level))


def headline(found: Sequence[Finding]) -> tuple[Level, str]:
    """Return one sentence about the findings, and their level."""
    bad = sum(one.rank == BAD for one in found)
    notes = sum(one.rank == NOTE for one in found)
    if bad:
        return Level.ALARM, f"{counted(bad, 'problem')} found."
    if notes:
        return Level.WAITING, f"No problem found, {counted(notes, 'note')}."
    return Level.QUIET, "Nothing keeps a hold from working."
