"""Tries the reusable cases with one client after the other, and returns verdicts."""

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
    """The verdict on a client in a case."""

    PASSES = "passes"
    LEAKS = "leaks"
    DIFFERS = "differs"
    ABSENT = "absent"
    UNCLEAR = "unclear"


@frozen(kw_only=True)
class Outcome:
    """
    The verdict on one client in one case, with the text of the case's error.

    ``ABSENT``: the client lacks a call. ``UNCLEAR``: the situation did not come about.
    ``starved``: the client gave no records after a resume.
    """

    case: str
    client: str
    verdict: Verdict
    seen: str = ""
    starved: bool = False


def tried(one, lab, client):
    """
    Try one case, and close the consumers that it left open.

    A case whose situation does not come about is tried up to three times, and the
    outcome has the reasons. Ours has one try: a join that fails is its own fault.
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
