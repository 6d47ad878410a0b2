"""
Detects that a topic was deleted and recreated under the same name.

Journals do not have the topic's id. But while a topic exists, there is one record with
one time at each offset, a log is written in the order of its offsets, and a producer
gets one acknowledgement for each record. If journals contradict this, records were
written to two topics, and the offsets of the two cannot be compared.
"""

from collections.abc import Iterable, Iterator, Sequence

from attrs import frozen

from safeconsumer.audit.facts import Fact
from safeconsumer.audit.ownerships import Dated, Epoch
from safeconsumer.audit.spans import Spans, merged

OF_OFFSETS = ("A2", "A3", "A4", "A5", "A6", "W4", "W5", "W7")
"""
The checks that compare offsets.
"""


@frozen
class Anew:
    """
    Evidence that a topic was recreated while it was read.

    Attributes:
        why: the reason, in words.
        since: the topic was the old one at least until then, seconds since the epoch.
        is_sure: whether it is certain; if not, it may also be that the clocks of two
            brokers differ by more than is allowed.
    """

    why: str
    since: float
    is_sure: bool = True


class Dating:
    """
    Collects the times of records in one ownership.

    Memory grows with starts and seeks: of consecutive deliveries only the last is kept.
    """

    def __init__(self) -> None:
        self._up_to = -1
        self._starts = 0  # how many were known at the last one that was not consecutive

    def take(self, fact: Fact, known: list[Dated], position: int | None) -> None:
        """
        Note the time of a delivery.

        Args:
            fact: the delivery.
            known: the times noted in its ownership; this one is added.
            position: the member's position before; None if it is unknown.
        """
        is_brokers = fact["written"] is not None
        at = fact["written"] if is_brokers else fact["created"]
        if at is None:
            return
        now = Dated(offset=fact["first"], at=at, is_brokers=is_brokers, seen=fact.at)
        goes_on = self._up_to == fact["from"] == position
        if goes_on and len(known) > self._starts:
            known[-1] = now
        else:
            known.append(now)
        if not goes_on:
            self._starts = len(known)
        self._up_to = fact["next"]


def made_anew(
    epochs: Sequence[Epoch], told: Iterable[Spans], skew: float
) -> Anew | None:
    """
    Return the evidence that the topic was recreated; None if there is no evidence.

    Args:
        epochs: all ownerships.
        told: the records that each producer got acknowledged.
        skew: seconds by which the clocks of two brokers may differ.
    """
    for spans in told:
        if _is_twice(spans):
            return Anew(_said("a producer got the same offset acknowledged twice"), 0.0)
    dated = sorted(
        (one for epoch in epochs for one in epoch.dated), key=lambda one: one.seen
    )
    replaced, swapped = list(_replaced(dated)), list(_out_of_order(dated, skew))
    if not (replaced or swapped):
        return None
    old, new = min((*replaced, *swapped), key=lambda two: two[0].seen)
    why = f"offset {new.offset} is of another record than those up to {old.offset} were"
    by = max((abs(one.at - other.at) for one, other in swapped), default=0.0)
    return Anew(
        _said(why, "" if replaced else _or_clocks(by, skew)), old.seen, bool(replaced)
    )


def is_one_topic(epoch: Epoch, skew: float) -> bool:
    """Return whether an ownership saw one topic, as brokers' times never go back."""
    is_told = bool(epoch.dated) and all(one.is_brokers for one in epoch.dated)
    return is_told and made_anew([epoch], (), skew) is None


def _said(why: str, or_else: str = "") -> str:
    return (
        f"the topic was deleted and recreated: {why}; audit the journals from before "
        f"and after that separately{or_else}"
    )


def _or_clocks(by: float, skew: float) -> str:
    return (
        f". Otherwise the clocks of two brokers differ by {by:.3f} s, and {skew:g} s "
        f"are allowed"
    )


def _is_twice(spans: Spans) -> bool:
    end = -1
    for start, next_ in spans:
        if start < end:  # or acknowledged in another order
            whole = sum(b - a for a, b in spans)
            return whole > sum(b - a for a, b in merged(spans))
        end = next_
    return False


def _replaced(dated: Iterable[Dated]) -> Iterator[tuple[Dated, Dated]]:
    known: dict[tuple[int, bool], Dated] = {}
    for one in dated:
        key = one.offset, one.is_brokers
        before = known.get(key, one)
        if before.at != one.at:
            yield before, one
        known[key] = one


def _out_of_order(dated: Iterable[Dated], skew: float) -> Iterator[tuple[Dated, Dated]]:
    latest: Dated | None = None
    for one in sorted(
        (one for one in dated if one.is_brokers), key=lambda one: one.offset
    ):
        if latest is not None and latest.at > one.at + skew:
            # The record that was written later belongs to the new topic.
            yield one, latest
        if latest is None or one.at > latest.at:
            latest = one
