"""The known verdicts on ours and on kafka-python 3.0.12."""

from tests.harness.trying import OURS, Verdict

_STARVES = (
    "resume-in-mid-batch",
    "five-of-six-resumed",
    "resume-around-fetches",
    "seek-while-paused",
)
_RAISES_A_BARE_KEY_ERROR = (
    "bad-target-among-good-ones",
    "paused-before-the-first-poll",
)
_FORGETS_WITH_THE_OWNERSHIP = (
    "assigned-away-and-back",
    "given-up-with-a-fetch-in-flight",
    "another-member-went-on-meanwhile",
    "moves-and-returns",
    "paused-before-each-poll",
    "the-rest-beside-another-pause",
    "evicted-for-not-polling",
    "evicted-for-being-frozen",
    "unsubscribed-and-back",
    "another-topic-and-back",
    "topic-created-again",
)
_HANGS_OR_LOSES = ("time-limit-at-any-place-of-a-poll",)
_TAKES_A_NUMBER_FOR_A_POSITION = (
    "log-cut-while-away",
    "recreated-longer-while-paused",
    "recreated-shorter-while-paused",
    "commit-after-recreation",
)
_PAUSES_PARTITIONS_ONLY = (
    "the-rest-beside-a-pause-of-the-topic",
    "topic-with-later-partitions",
    "pattern-with-later-topics",
    "starts-paused",
    "follows-to-the-next-owner",
)

ENDS_WITH_THE_OWNERSHIP = (
    "assigned-away-and-back",
    "given-up-with-a-fetch-in-flight",
    "unsubscribed-and-back",
)
"""The cases in which a plain pause of ours ends as well."""

NOT_ABOUT_PAUSING = (
    "a-join-outlasts-its-poll",
    "time-limit-at-any-place-of-a-poll",
    "log-cut-while-away",
)
"""The cases in which nothing is paused."""

STOCK = {
    case: verdict
    for cases, verdict in (
        (_STARVES, Verdict.DIFFERS),
        (_RAISES_A_BARE_KEY_ERROR, Verdict.DIFFERS),
        (_HANGS_OR_LOSES, Verdict.DIFFERS),
        (_TAKES_A_NUMBER_FOR_A_POSITION, Verdict.DIFFERS),
        (_FORGETS_WITH_THE_OWNERSHIP, Verdict.LEAKS),
        (_PAUSES_PARTITIONS_ONLY, Verdict.ABSENT),
    )
    for case in cases
}
"""kafka-python's verdicts by case; it passes the others."""


def is_known(outcome):
    """
    Whether an outcome has the known verdict.

    kafka-python may starve after any resume, if a fetch was in flight at the pause: some
    cases force that, in the others it is a race.
    """
    if outcome.client == OURS:
        is_ended = outcome.case in ENDS_WITH_THE_OWNERSHIP
        return outcome.verdict == (Verdict.LEAKS if is_ended else Verdict.PASSES)
    known = STOCK.get(outcome.case, Verdict.PASSES)
    return outcome.verdict == known or (known == Verdict.PASSES and outcome.starved)
