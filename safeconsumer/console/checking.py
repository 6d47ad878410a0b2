"""
What the doctor's page shows: the findings of ``safeconsumer doctor``, worst first.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile

import kafka.errors as kafka_errors
from attrs import frozen

from safeconsumer.console.desk import Desk
from safeconsumer.errors import ControlTopicError
from safeconsumer.group import findings
from safeconsumer.group.judging import BAD, GOOD, NOTE, Finding
from safeconsumer.group.troubles import said

_RANKS = {BAD: ("alarm", "problem"), NOTE: ("waiting", "note"), GOOD: ("good", "ok")}

# For so long another look is waited for, seconds.
_FREE_WITHIN = 5.0


@frozen
class FindingRow:
    """
    One finding, and how much it matters.
    """

    level: str
    words: str
    what: str
    do: str


def rows(
    desk: Desk, group: str | None, is_wanted: Callable[[], bool]
) -> list[FindingRow]:
    """
    Look, and return what was found; what could not be looked at is among it.

    It has a connection of its own: nobody who places a hold waits for it.

    Args:
        desk: what it works with.
        group: whose members are looked at; None for none.
        is_wanted: tells whether anybody still waits for it; else it asks no more.
    """
    with desk.connect() as operator:
        told = _until_trouble(findings.findings(operator, group))
        found = list(takewhile(lambda _: is_wanted(), told))
    return [
        FindingRow(*_RANKS[one.rank], one.what, one.do)
        for rank in _RANKS
        for one in found
        if one.rank == rank
    ]


def headline(found: Sequence[FindingRow]) -> tuple[str, str]:
    """
    Say in one sentence what was found, and how bad it is.
    """
    bad = sum(one.words == "problem" for one in found)
    notes = sum(one.words == "note" for one in found)
    if bad:
        return "alarm", f"{bad} {'problem' if bad == 1 else 'problems'}."
    if notes:
        return "waiting", f"No problem, and {notes} to note."
    return "quiet", "Nothing is in the way of a hold."


def _until_trouble(found: Iterator[Finding]) -> Iterator[Finding]:
    try:
        yield from found
    except (kafka_errors.KafkaError, ControlTopicError, OSError) as error:
        yield Finding(
            rank=BAD,
            what=f"the rest could not be looked at: {said(error)}",
            do="look again once the broker answers",
        )
