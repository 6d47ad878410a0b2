"""Applies the rules to facts."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from attrs import evolve

from safeconsumer.audit.case import Acknowledged, Case, Epoch, Group, Part, Reader
from safeconsumer.audit.entries import Unseen
from safeconsumer.audit.facts import Fact, OpenSeek
from safeconsumer.audit.findings import Address, Basis, Finding
from safeconsumer.audit.process import Process
from safeconsumer.audit.results import Result, Settings
from safeconsumer.audit.rules import RULES
from safeconsumer.audit.rules.a2 import unrecorded
from safeconsumer.audit.rules.rule import Rule, Unjudged
from safeconsumer.audit.stream import Source

_Of = Callable[[Any], Iterable[tuple[int | None, str]]]


def _by_kind() -> Mapping[type[Fact], list[tuple[Rule, _Of]]]:
    found: dict[type[Fact], list[tuple[Rule, _Of]]] = {}
    for rule in RULES:
        for kind, of in rule.of.items():
            found.setdefault(kind, []).append((rule, of))
    return found


_BY_KIND = _by_kind()


class _Judged:
    # The facts about one member and one partition, and the violations that these facts
    # prove; the first violation of each check is kept in full.

    def __init__(self, member: str, *, is_held: bool) -> None:
        self.part = Part(member, keeps_moments=is_held)
        self.findings: dict[str, Finding] = {}

    def take(self, fact: Fact) -> None:
        for rule, of in _BY_KIND.get(type(fact), ()):
            for offset, evidence in of(fact):
                self._add(rule.check, fact, offset, evidence)
        self.part.take(fact)

    def _add(self, check: str, fact: Fact, offset: int | None, evidence: str) -> None:
        first = self.findings.get(check)
        if first is None:
            self.findings[check] = Finding.of_entry(
                check, self.part.member, fact, offset, evidence
            )
        else:
            first.more.add(fact.at, fact.n)


class Judge:
    """
    Judges each group and partition that the journals name.

    Memory use grows with the number of ownerships, commits, gaps between deliveries,
    and records that wait for their handlers; for a group with holds also with the
    number of polls that returned records and of handler starts.

    Args:
        settings: the judge's settings.
        watch: called with the address, the member and the fact, for each fact; if it is
            given, each delivery is a fact.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        watch: Callable[[Address, str, Fact], object] | None = None,
    ) -> None:
        self._settings = settings
        self._watch = watch
        self._readers: dict[str, dict[str, Reader]] = {}
        self._judged: dict[Address, dict[str, _Judged]] = {}
        self._written: dict[Address, Acknowledged] = {}
        self._groups: dict[str | None, Group] = {}

    def read(self, journal: Source) -> None:
        """
        Read a whole journal.

        Raises:
            JournalError: the journal is broken at some entry. The entries before it are
                kept, but no verdict can be clean.
        """
        process = Process(
            journal.member,
            journal.group,
            lambda address: self._watched(address, journal.member),
            is_each=self._watch is not None or is_held(self._settings, journal.group),
        )
        try:
            process.read(journal.entries)
        finally:
            process.end()

    def _watched(self, address: Address, member: str) -> Callable[[Fact], None]:
        take, watch = self.takes(address, member), self._watch
        if watch is None:
            return take

        def both(fact: Fact) -> None:
            take(fact)
            watch(address, member, fact)

        return both

    def epochs(self, case: Address) -> list[Epoch]:
        """Return the ownerships of a case; those of each member are in order."""
        own = self._judged.get(case, {}).values()
        return [epoch for one in own for epoch in one.part.epochs]

    def takes(self, address: Address, member: str) -> Callable[[Fact], None]:
        """Return the function that receives a member's facts about a group or a partition."""
        if address.group is None:
            return self._written.setdefault(address, Acknowledged()).take
        if not address.is_case:
            readers = self._readers.setdefault(address.group, {})
            return readers.setdefault(member, Reader()).take
        own = self._judged.setdefault(address, {})
        new = _Judged(member, is_held=is_held(self._settings, address.group))
        return own.setdefault(member, new).take

    def results(self) -> dict[Address, Result]:
        """Return the result of each case, once all journals are read."""
        known = [*self._judged, *self._written]
        written = written_to(known)
        self._groups.clear()
        return {
            one: self.result(one, is_written=one.topic in written)
            for one in needs_of(known)
        }

    def result(self, address: Address, *, is_written: bool) -> Result:
        """
        Return the result of one case.

        Args:
            address: the group and the partition.
            is_written: whether a journal, or the topic itself, shows records that were
                written to the topic, perhaps only to other partitions.
        """
        own = dict(sorted(self._judged.get(address, {}).items()))
        case = Case(
            address,
            self._group(address.group),
            {name: one.part for name, one in own.items()},
            self._written.get(evolve(address, group=None), Acknowledged()),
            is_written=is_written,
        )
        alone = (one.findings.values() for one in own.values())
        return result_of(case, chain.from_iterable(alone))

    def _group(self, name: str | None) -> Group:
        known = self._groups.get(name)
        if known is None:
            readers = dict(sorted(self._readers.get(name or "", {}).items()))
            known = self._groups[name] = Group(name, self._settings, readers)
        return known


def result_of(case: Case, alone: Iterable[Finding]) -> Result:
    """
    Apply all rules to a case.

    Args:
        case: the case.
        alone: the violations that the facts about one member prove on their own.
    """
    findings, unjudged = [*alone], dict[str, str]()
    for one in (
        *_unjudged(case),
        *(one for rule in RULES for one in rule.across(case)),
    ):
        if isinstance(one, Finding):
            findings.append(one)
        else:
            unjudged.setdefault(*one)
    moot = _MOOT & unjudged.keys()
    for rule in RULES:
        if why := rule.left_open(case):
            unjudged.setdefault(rule.check, why)
    holds = tuple(one for one in case.bounds if case.covers(one.span.scope))
    return Result(
        case=case.address,
        findings=tuple(
            one for one in findings if one.check not in moot or one.basis in _PROVEN
        ),
        group_holds=holds,
        clocks=case.clocks,
        bases={rule.check: _basis_of(case, rule, unjudged) for rule in RULES},
        unjudged=unjudged,
        unrecorded=unrecorded(case).count,
    )


# If one of these checks is not judged, its findings count only if journals prove them.
_MOOT = frozenset({"A2", "A4", "A6", "W5"})
_PROVEN = frozenset({Basis.ORDER, Basis.COMMITS})


def _basis_of(case: Case, rule: Rule, unjudged: Mapping[str, str]) -> Basis:
    is_alone = len({one.member for one in case.epochs}) <= 1
    if rule.basis is Basis.COMMITS and is_alone:
        return Basis.ORDER
    is_held = any(case.covers(one.span.scope) for one in case.bounds)
    if rule.check == "W10" and case.is_working and (is_held or "W10" in unjudged):
        return Basis.CLOCKS
    return rule.basis


def _unjudged(case: Case) -> Iterator[Unjudged]:
    if case.incomparable:
        checks = ["A2", "A4", "A5", "A6"]
        if case.is_working:
            checks.append("W5")
        yield from ((check, case.incomparable) for check in checks)
    if case.hidden_group:
        yield from ((check, case.hidden_group) for check in ("A2", "A4", "A6"))
    for name, part in case.parts.items():
        if Unseen in part.marks and part.is_working:
            yield (
                "W4",
                f"the journal of {name} lacks commits, as of a producer's transaction",
            )
        if OpenSeek in part.marks:
            why = f"{name} received records during a seek that never returned"
            yield from ((check, why) for check in ("A3", "A4", "A5"))


def needs_of(addresses: Iterable[Address]) -> dict[Address, frozenset[Address]]:
    """
    Return the cases, each with the addresses about which it needs facts.

    A partition to which records were written forms a case with each group that reads
    its topic. If no group reads the topic, the partition forms a case with the group
    ``""``, because no member delivered the acknowledged records. If groups and a
    consumer without a group read a topic, that consumer is judged only on the
    partitions that its own journal names.
    """
    found = frozenset(addresses)
    readers: dict[str, set[str]] = {}
    for one in found:
        if one.is_case and one.group is not None:
            readers.setdefault(one.topic, set()).add(one.group)
    cases = {one for one in found if one.is_case}
    for one in found:
        if one.group is None:
            groups = readers.get(one.topic, {""})
            groups = groups - {""} or groups
            cases.update(evolve(one, group=group) for group in groups)
    return {
        case: frozenset({case, evolve(case, group=None), Address(case.group)}) & found
        for case in sorted(cases)
    }


def written_to(addresses: Iterable[Address]) -> frozenset[str]:
    """Return the topics that have had records, according to a journal or the topic itself."""
    return frozenset(one.topic for one in addresses if one.group is None)


def is_held(settings: Settings, group: str | None) -> bool:
    """Return whether the holds topics have a hold of a group."""
    control = settings.control
    return control is not None and any(one.group == group for one in control.spans)
