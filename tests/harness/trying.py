"""Runs the reusable cases on a client, and lists the known verdicts."""

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
    """The verdict on a client in one case."""

    PASSES = "passes"
    LEAKS = "leaks"
    DIFFERS = "differs"
    ABSENT = "absent"
    UNCLEAR = "unclear"


@frozen(kw_only=True)
class Outcome:
    """
    The verdict on one client in one case, with the error that the case raised.

    ``ABSENT``: the client does not have a method that the case calls. ``UNCLEAR``: the
    situation did not occur.
    ``starved``: the client delivered no records after a resume.
    """

    case: str
    client: str
    verdict: Verdict
    seen: str = ""
    starved: bool = False


def tried(one, lab, client):
    """
    Run one case, and close the consumers that the case left open.

    If a case's situation does not occur, the case is run up to three times, and the
    outcome lists the reasons. A case runs only once on our consumer, because a failed
    join would be a defect of our consumer.
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


ENDS_WITH_THE_OWNERSHIP = (
    "paused-partition-unassigned-and-back",
    "unassigned-and-back-with-a-fetch-in-flight",
    "paused-consumer-unsubscribes-and-resubscribes",
)
"""The cases in which our plain pause ends, too."""

NOT_ABOUT_PAUSING = (
    "a-join-outlasts-its-poll",
    "time-limit-at-any-point-in-a-poll",
    "log-truncated-while-no-member-reads",
)
"""The cases in which nothing is paused."""

STOCK = {
    # kafka-python delivers no records after the resume.
    "resume-in-mid-batch": Verdict.DIFFERS,
    "five-of-six-resumed": Verdict.DIFFERS,
    "pause-and-resume-around-fetches": Verdict.DIFFERS,
    "seek-while-paused": Verdict.DIFFERS,
    # kafka-python raises a KeyError.
    "pause-of-one-bad-partition-among-good-ones": Verdict.DIFFERS,
    "paused-before-the-first-poll": Verdict.DIFFERS,
    # kafka-python hangs or loses records.
    "time-limit-at-any-point-in-a-poll": Verdict.DIFFERS,
    # kafka-python uses an offset of the old log as a position in the new one.
    "log-truncated-while-no-member-reads": Verdict.DIFFERS,
    "paused-topic-recreated-with-more-records": Verdict.DIFFERS,
    "paused-topic-recreated-with-fewer-records": Verdict.DIFFERS,
    "commit-after-paused-topic-was-recreated": Verdict.DIFFERS,
    # kafka-python forgets the pause when it loses the partition.
    "paused-partition-unassigned-and-back": Verdict.LEAKS,
    "unassigned-and-back-with-a-fetch-in-flight": Verdict.LEAKS,
    "another-member-reads-further-in-the-meantime": Verdict.LEAKS,
    "paused-partition-moves-and-returns": Verdict.LEAKS,
    "paused-before-each-poll": Verdict.LEAKS,
    "pausing-the-rest-while-another-owner-pauses-a-partition": Verdict.LEAKS,
    "evicted-for-not-polling": Verdict.LEAKS,
    "evicted-for-being-frozen": Verdict.LEAKS,
    "paused-consumer-unsubscribes-and-resubscribes": Verdict.LEAKS,
    "paused-topic-is-unsubscribed-and-resubscribed": Verdict.LEAKS,
    "paused-topic-deleted-and-recreated": Verdict.LEAKS,
    # kafka-python can pause only partitions.
    "pausing-the-rest-while-another-owner-pauses-the-topic": Verdict.ABSENT,
    "paused-topic-gains-partitions": Verdict.ABSENT,
    "paused-pattern-matches-later-topics": Verdict.ABSENT,
    "consumer-starts-paused": Verdict.ABSENT,
    "pause-moves-with-its-partition": Verdict.ABSENT,
}
"""The known verdicts on kafka-python 3.0.12, which passes the other cases."""


def is_known(outcome):
    """
    Return whether an outcome equals the known verdict.

    kafka-python may starve after any resume if a fetch was in flight at the pause. Some
    cases force such a fetch; in the other cases the outcome depends on a race.
    """
    if outcome.client == OURS:
        is_ended = outcome.case in ENDS_WITH_THE_OWNERSHIP
        return outcome.verdict == (Verdict.LEAKS if is_ended else Verdict.PASSES)
    known = STOCK.get(outcome.case, Verdict.PASSES)
    return outcome.verdict == known or (known == Verdict.PASSES and outcome.starved)
