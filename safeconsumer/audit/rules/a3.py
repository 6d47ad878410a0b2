"""A3: a member delivers only records of partitions that it owns, without a gap."""

from collections.abc import Iterator

from safeconsumer.audit.facts import Delivered
from safeconsumer.audit.rules.rule import Broken, Rule


def _delivered(fact: Delivered) -> Iterator[Broken]:
    if not fact.is_owned:
        yield fact.first, "delivered without owning it"
    if fact.is_peek:
        return
    start, first, last, end = fact.start, fact.first, fact.last, fact.next
    if not start <= first <= last < end or fact.count > last - first + 1:
        yield first, f"offsets {first} to {last} are not within {start} to {end - 1}"
    if fact.stood is not None and start > fact.stood:
        yield fact.stood, f"continued at {start}; {fact.stood} was next"


RULE = Rule(check="A3", of={Delivered: _delivered})
