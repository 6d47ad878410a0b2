"""Judges facts by the rules."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from attrs import evolve

from safeconsumer.audit.case import Acknowledged, Case, Group, Part, Reader
from safeconsumer.audit.entries import Entry, Other
from safeconsumer.audit.facts import Fact
from safeconsumer.audit.findings import Address, Basis, Finding, Findings
from safeconsumer.audit.process import Process
from safeconsumer.audit.results import Result, Settings
from safeconsumer.audit.rules import RULES
from safeconsumer.audit.rules.a2 import unrecorded
from safeconsumer.audit.rules.begins import unknown_commits
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
    # One member on one partition: what it did, and what is wrong with that alone.

    def __init__(self, case: Address, member: str) -> None:
        self.part = Part(member)
        self.findings = Findings()
        self._case = case

    def take(self, fact: Fact) -> None:
        for rule, of in _BY_KIND.get(type(fact), ()):
            for offset, evidence in of(fact):
                self.findings.add(
                    Finding.of_entry(
                        rule.check, self._case, self.part.member, fact, offset, evidence
                    )
                )
        self.part.take(fact)


class Judge:
    """
    Judges all cases that journals are about.

    Memory grows with ownerships, commits, gaps between deliveries, and records that wait
    for their handlers; where something was held for the group also with polls that
    returned records, and with what handlers began.

    Args:
        settings: the assumptions.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._processes: dict[tuple[str, str], Process] = {}
        self._readers: dict[str, dict[str, Reader]] = {}
        self._judged: dict[Address, dict[str, _Judged]] = {}
        self._written: dict[Address, Acknowledged] = {}
        self._groups: dict[str | None, Group] = {}

    def read(self, journal: Source) -> None:
        """
        Read a whole journal.

        Raises:
            JournalError: it is broken somewhere; the entries before that count, but
                they prove nothing.
        """
        self.follow(journal.member, journal.group, journal.entries)

    def follow(self, member: str, group: str, entries: Iterable[Entry | Other]) -> None:
        """
        Follow entries of one member.

        Raises:
            JournalError: as :meth:`read`.
        """
        known = self._processes.get((member, group))
        if known is None:
            known = self._processes[member, group] = Process(
                member,
                group,
                lambda address: self.takes(address, member),
                is_each=is_held(self._settings, group),
            )
        try:
            known.read(entries)
        finally:
            known.end()

    def takes(self, address: Address, member: str) -> Callable[[Fact], None]:
        """Return what takes the facts of a member about a group, or a partition."""
        if address.group is None:
            return self._written.setdefault(address, Acknowledged()).take
        if not address.is_case:
            readers = self._readers.setdefault(address.group, {})
            return readers.setdefault(member, Reader()).take
        own = self._judged.setdefault(address, {})
        return own.setdefault(member, _Judged(address, member)).take

    def results(self) -> dict[Address, Result]:
        """Return what was found about each case, once all journals were read."""
        known = [*self._judged, *self._written]
        written = written_to(known)
        self._groups.clear()
        return {
            one: self.result(one, is_written=one.topic in written)
            for one in needs_of(known)
        }

    def result(self, address: Address, *, is_written: bool) -> Result:
        """
        Return what was found about one case.

        Args:
            address: the group and the partition.
            is_written: whether a journal, or the topic itself, says what was written to
                the topic, perhaps to other partitions only.
        """
        own = dict(sorted(self._judged.get(address, {}).items()))
        case = Case(
            address,
            self._group(address.group),
            {name: one.part for name, one in own.items()},
            self._written.get(evolve(address, group=None), Acknowledged()),
            is_written=is_written,
        )
        return result_of(case, (one for each in own.values() for one in each.findings))

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
        case: the facts about it.
        alone: what the facts of single members break.
    """
    findings, unjudged = [*alone], dict[str, str]()
    for one in (*_across(case), *_open_checks(case)):
        if isinstance(one, Finding):
            findings.append(one)
        else:
            unjudged.setdefault(*one)
    moot = {check for check, _ in _without_order(case)}
    holds = tuple(one for one in case.bounds if case.covers(one.span.scope))
    bases = {rule.check: rule.basis for rule in RULES}
    if holds or "W10" in unjudged:
        bases["W10"] = Basis.CLOCKS if case.is_working else bases["W10"]
    return Result(
        case=case.address,
        findings=tuple(
            one for one in findings if one.check not in moot or one.basis is Basis.ORDER
        ),
        group_holds=holds,
        bases=bases,
        unjudged=unjudged,
        unrecorded=unrecorded(case).count,
    )


def _across(case: Case) -> Iterator[Finding | Unjudged]:
    yield from _without_order(case)
    for rule in RULES:
        yield from rule.across(case)


def _open_checks(case: Case) -> Iterator[Unjudged]:
    if case.incomparable:
        checks = ("A2", "A4", "A5", "A6", "W5")
        yield from ((check, case.incomparable) for check in checks)


def _without_order(case: Case) -> Iterator[Unjudged]:
    # Checks of which only what one process's own journal proves counts.
    for why in case.unseen():
        yield from ((check, why) for check in ("A4", "A5", "A6"))
        if case.is_working:
            yield "W4", why
    if case.hidden_group:
        yield from ((check, case.hidden_group) for check in ("A2", "A4", "A6"))
    yield from unknown_commits(case)


def needs_of(addresses: Iterable[Address]) -> dict[Address, frozenset[Address]]:
    """
    Return the cases that facts are about, and the addresses whose facts each needs.

    A partition that was written to is a case of each group that reads its topic. If no
    group does, it is a case of the group ``""``: nobody delivered the acknowledged
    records. If groups and a consumer without a group read a topic, that consumer is
    judged only on the partitions that its own journal names.
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
    """Return the topics for which a journal or the topic itself says what was written."""
    return frozenset(one.topic for one in addresses if one.group is None)


def is_held(settings: Settings, group: str | None) -> bool:
    """Return whether the holds topics have a hold of a group."""
    control = settings.control
    return control is not None and any(one.group == group for one in control.spans)
