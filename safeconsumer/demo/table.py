"""Formats the results as a table and a summary sentence, and judges them."""

from collections.abc import Iterator, Sequence
from enum import Enum, auto

from safeconsumer.demo.playing import Result
from safeconsumer.demo.tally import Failure

_HEAD = "situation       client        records paused wanted  lost twice  sec result"
_LEGEND = (
    "records = delivered while paused + when wanted + lost; twice: though committed"
)
# Why records were lost; the key is whether kafka-python has a call for the situation.
_LOSSES = {
    True: "lost: a partition that kafka-python pauses in mid-batch may deliver no more",
    False: "lost by a thread pool: its killed process had committed before the work",
}


class Verdict(Enum):
    """The verdict on all results, determined by the worst result."""

    AS_KNOWN = auto()
    NOT_SHOWN = auto()
    NOT_PLAYED = auto()
    BROKEN = auto()


def verdict(results: Sequence[Result]) -> Verdict:
    """Return the verdict on the results."""
    odd = [one for one in results if not one.is_as_known]
    if any(one.client.is_ours for one in odd):
        return Verdict.BROKEN
    if any(one.error for one in results):
        return Verdict.NOT_PLAYED
    return Verdict.NOT_SHOWN if odd else Verdict.AS_KNOWN


def table(results: Sequence[Result]) -> Iterator[str]:
    """Yield a line with the counts of records for each client in each situation."""
    yield _HEAD
    name = None
    for one in results:
        counts = one.counts
        shown = "" if one.situation.name == name else one.situation.name
        name = one.situation.name
        yield (
            f"{shown:15} {one.title:13} {counts.produced:7,} {counts.while_paused:6,} "
            f"{counts.when_wanted:6,} {counts.lost:5,} {counts.twice:5,} "
            f"{one.seconds:4.1f} {one.outcome}"
        )
    yield _LEGEND
    losers = [one for one in results if Failure.LOST in one.failures]
    kinds = {one.situation.is_counted for one in losers if not one.client.is_ours}
    yield from (text for is_counted, text in _LOSSES.items() if is_counted in kinds)
    for one in results:
        if one.error:
            yield f"{one.situation.name}, {one.title}: {one.error}"


def sentence(results: Sequence[Result]) -> str:
    """Summarise the results; KafkaConsumer's count only if ``is_counted`` is set."""
    ours = [one for one in results if one.client.is_ours]
    counted = [
        one for one in results if one.situation.is_counted and not one.client.is_ours
    ]
    many = "" if len(ours) == 1 else "s"
    text = (
        f"SafeConsumer leaked {_leaked(ours):,}, lost {_lost(ours):,} and duplicated "
        f"{_twice(ours):,} records in {len(ours)} situation{many}"
    )
    if counted:
        failed = sum(bool(one.failures) for one in counted)
        text += (
            f"; KafkaConsumer failed in {failed} of {len(counted)}: it delivered "
            f"{_leaked(counted):,} records while paused and never delivered "
            f"{_lost(counted):,}"
        )
    return text + _RESERVATIONS[verdict(results)] + "."


_RESERVATIONS = {
    Verdict.AS_KNOWN: "",
    Verdict.NOT_SHOWN: " - but some known failures of kafka-python did not occur",
    Verdict.NOT_PLAYED: " - but not every situation could be played to its end",
    Verdict.BROKEN: " - SafeConsumer broke a promise",
}


def _leaked(results: Sequence[Result]) -> int:
    return sum(one.counts.while_paused for one in results)


def _lost(results: Sequence[Result]) -> int:
    return sum(one.counts.lost for one in results if not one.error)


def _twice(results: Sequence[Result]) -> int:
    return sum(one.counts.twice for one in results)
