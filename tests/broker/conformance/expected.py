"""What ours and kafka-python 3.0.12 are known to do; what differs is noticed."""

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
"""Where a plain pause of ours ends as well."""

NOT_ABOUT_PAUSING = (
    "a-join-outlasts-its-poll",
    "time-limit-at-any-place-of-a-poll",
    "log-cut-while-away",
)
"""Where nothing is paused."""

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
"""The verdicts by case; it passes where nothing is said."""


def is_known(outcome):
    """
    Tell whether an outcome is no surprise.

    kafka-python may starve wherever something is resumed, if a fetch was in flight
    when it was paused; that is a race, but for the cases that force it.
    """
    if outcome.client == OURS:
        is_ended = outcome.case in ENDS_WITH_THE_OWNERSHIP
        return outcome.verdict == (Verdict.LEAKS if is_ended else Verdict.PASSES)
    known = STOCK.get(outcome.case, Verdict.PASSES)
    return outcome.verdict == known or (known == Verdict.PASSES and outcome.starved)
