"""Defines the judge's findings and the evidence on which they rest."""

from collections.abc import Iterator
from enum import StrEnum

from attrs import evolve, field, frozen

from safeconsumer.audit.facts import Fact
from safeconsumer.audit.moments import Moments
from safeconsumer.audit.reading import TopicPartition


@frozen(order=True)
class Address:
    """
    The subject of a fact: a case, or a group or topic that several cases share.

    Attributes:
        group: the consumer group, "" without a group; None for every group, as for the
            records that producers wrote.
        topic: a topic; "" for every partition of the group.
        partition: the partition's number; -1 with an empty topic.
    """

    group: str | None
    topic: str = ""
    partition: int = -1

    @property
    def is_case(self) -> bool:
        """Whether the address names a case, which is one partition in one group."""
        return self.group is not None and self.topic != ""

    @property
    def tp(self) -> TopicPartition:
        """The topic and the partition."""
        return self.topic, self.partition


class Basis(StrEnum):
    """The evidence on which a finding rests; the value is its human-readable description."""

    ORDER = "the order of one process's entries"
    OFFSETS = "offsets"
    COMMITS = "the journals that commits name"
    GENERATIONS = "the group's generations"
    CLOCKS = "clocks of several hosts, within the allowance"


@frozen(kw_only=True)
class Finding:
    """
    A broken promise.

    Attributes:
        check: the check, one of :data:`safeconsumer.audit.results.CHECKS`.
        member: the member that broke the promise; "" if several members broke it
            together.
        offset: the first offset concerned, or None.
        evidence: the evidence from the journals, in one sentence.
        basis: the kind of evidence.
        at: the time of the violation, seconds since the epoch; None if it is unknown.
        entry: the number of the entry that shows the violation; None if several entries
            show it.
        more: the times of further violations, with the numbers of the entries that show
            them.
    """

    check: str
    member: str
    offset: int | None
    evidence: str
    basis: Basis
    at: float | None = None
    entry: int | None = None
    more: Moments = field(factory=Moments)

    @classmethod
    def of_entry(
        cls, check: str, member: str, fact: Fact, offset: int | None, evidence: str
    ) -> "Finding":
        """Return the finding that one entry of a member's journal proves."""
        return cls(
            check=check,
            member=member,
            offset=offset,
            evidence=f"entry {fact.n}: {evidence}",
            basis=Basis.ORDER,
            at=fact.at,
            entry=fact.n,
        )

    @property
    def each(self) -> "Iterator[Finding]":
        """The first violation and all further ones, as separate findings."""
        yield self if not self.more else evolve(self, more=Moments())
        for at, entry in self.more:
            evidence = f"entry {entry}: as in entry {self.entry}"
            again = evolve(self, at=at, entry=entry, offset=None, evidence=evidence)
            yield evolve(again, more=Moments())
