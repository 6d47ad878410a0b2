"""
What the doctor's page shows: the findings of ``safeconsumer doctor``, worst first.
"""

import time
from collections.abc import Iterator, Sequence

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


def rows(desk: Desk, group: str | None) -> list[FindingRow]:
    """
    Look, and return what was found; what could not be looked at is among it.

    Raises:
        Problem: somebody else has it look, and it does not come to an end.
    """
    with desk.doctor.until(time.monotonic() + _FREE_WITHIN) as operator:
        found = list(_until_trouble(findings.findings(operator, group)))
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
