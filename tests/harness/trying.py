"""Tries the reusable cases with one client after the other, and says what was seen."""

from enum import StrEnum
from functools import partial

from attrs import evolve, frozen

from safeconsumer.testing.cases.outcomes import (
    AbsentError,
    DiffersError,
    LeakedError,
    NotReachedError,
    StarvedError,
)
from safeconsumer.testing.cases.process import ClientError, HangsError

OURS = "safe"

_TRIES = 3


class Verdict(StrEnum):
    """What a client does in a case."""

    PASSES = "passes"
    LEAKS = "leaks"
    DIFFERS = "differs"
    ABSENT = "absent"
    UNCLEAR = "unclear"


@frozen(kw_only=True)
class Outcome:
    """
    The verdict on one client in one case, and what was seen.

    ``ABSENT`` has no such call; ``UNCLEAR`` could not be brought into the situation.
    ``starved`` tells that it differs by giving no records after a resume.
    """

    case: str
    client: str
    verdict: Verdict
    seen: str = ""
    starved: bool = False


def tried(one, lab, client):
    """
    Try one case, and close what it left open.

    Where its situation does not come about it is tried again, up to three times, and
    the outcome says so. Ours has one try: what it does not join is a fault of its own.
    """
    tries = 1 if client == OURS else _TRIES
    found, missed = _judged(one, lab, client), []
    while found.verdict == Verdict.UNCLEAR and len(missed) + 1 < tries:
        missed.append(f"before: {found.seen}")
        found = _judged(one, lab, client)
    return evolve(found, seen="; ".join(filter(None, [found.seen, *missed])))


def _judged(one, lab, client):
    outcome = partial(Outcome, case=one.name, client=client)
    try:
        one.run(lab)
        return outcome(verdict=Verdict.PASSES)
    except AbsentError as error:
        return outcome(verdict=Verdict.ABSENT, seen=str(error))
    except LeakedError as error:
        return outcome(verdict=Verdict.LEAKS, seen=str(error))
    except (DiffersError, HangsError, ClientError) as error:
        starved = isinstance(error, StarvedError)
        return outcome(verdict=Verdict.DIFFERS, seen=str(error), starved=starved)
    except NotReachedError as error:
        return outcome(verdict=Verdict.UNCLEAR, seen=str(error))
    finally:
        lab.end_case()
