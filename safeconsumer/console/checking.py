"""Runs the checks of ``safeconsumer doctor`` for its page, worst first."""

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile

import kafka.errors as kafka_errors
from attrs import frozen

from safeconsumer.console.state import State
from safeconsumer.errors import ControlTopicError
from safeconsumer.group import findings
from safeconsumer.group.judging import BAD, GOOD, NOTE, Finding
from safeconsumer.group.troubles import said

_RANKS = {BAD: ("alarm", "problem"), NOTE: ("waiting", "note"), GOOD: ("good", "ok")}

# Seconds to wait for another run of the checks.
_FREE_WITHIN = 5.0


@frozen
class FindingRow:
    """One finding, and how important it is."""

    level: str
    words: str
    what: str
    do: str


def rows(
    state: State, group: str | None, is_wanted: Callable[[], bool]
) -> list[FindingRow]:
    """
    Run the checks, and return the findings; failed checks are among them.

    It uses a separate connection, so placing a hold never waits for it.

    Args:
        state: the console's state.
        group: the group whose members are checked; None to check no members.
        is_wanted: returns whether the client still waits; if not, the checks stop.
    """
    with state.connect() as operator:
        told = _until_trouble(findings.findings(operator, group))
        found = list(takewhile(lambda _: is_wanted(), told))
    return [
        FindingRow(*_RANKS[one.rank], one.what, one.do)
        for rank in _RANKS
        for one in found
        if one.rank == rank
    ]


def headline(found: Sequence[FindingRow]) -> tuple[str, str]:
    """Return one sentence about the findings, and their level."""
    bad = sum(one.words == "problem" for one in found)
    notes = sum(one.words == "note" for one in found)
    if bad:
        counted = "is 1 problem" if bad == 1 else f"are {bad} problems"
        return "alarm", f"There {counted}."
    if notes:
        return (
            "waiting",
            f"There is no problem, but {notes} {'note' if notes == 1 else 'notes'}.",
        )
    return "quiet", "Nothing keeps a hold from working."


def _until_trouble(found: Iterator[Finding]) -> Iterator[Finding]:
    try:
        yield from found
    except (kafka_errors.KafkaError, ControlTopicError, OSError) as error:
        yield Finding(
            rank=BAD,
            what=f"the rest could not be checked: {said(error)}",
            do="run the checks again once the broker answers",
        )
