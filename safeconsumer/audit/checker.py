"""Judges journals: the reference checker."""

from collections.abc import Container, Iterable

from attrs import evolve

from safeconsumer.audit import fleet
from safeconsumer.audit.entries import Acked, Entry, Kept, Other
from safeconsumer.audit.findings import Address
from safeconsumer.audit.members import Member, Watch
from safeconsumer.audit.reading import TopicPartition, tp_of
from safeconsumer.audit.results import Case, Group, Result, Settings, result_of
from safeconsumer.audit.stream import Source
from safeconsumer.audit.tracks import Track


class Checker:
    """
    Judges all cases that journals are about in one pass, or one case by itself.

    For one case it needs the entries with the addresses that :func:`needs_of` names, as
    :func:`safeconsumer.audit.members.split` finds them; each member's in their order,
    and each once.

    Memory grows with ownerships, commits, gaps between deliveries, and records that wait
    for their handlers; where something was held for the group also with polls that
    returned records, and with what handlers began.

    Args:
        settings: the assumptions.
        only: the only case that is judged; None for all.
        watch: sees what members do.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        only: Address | None = None,
        watch: Watch | None = None,
    ) -> None:
        self._settings = settings
        self._only = only
        self._watch = watch
        self._members: dict[tuple[str, str], Member] = {}
        self._written: dict[TopicPartition, fleet.Acknowledged] = {}

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
        known = self._members.get((member, group))
        if known is None:
            known = self._members[member, group] = Member(
                member,
                group,
                only=None if self._only is None else self._only.tp,
                written=self._wrote,
                keeps_moments=_is_held(self._settings, group),
                watch=self._watch,
            )
        known.read(entries)

    def _wrote(self, entry: Acked | Kept) -> None:
        tp = tp_of(entry.tp)
        self._written.setdefault(tp, fleet.Acknowledged()).add(entry)

    def results(self) -> dict[Address, Result]:
        """Return what was found about each case, once all journals were read."""
        known = [
            *(
                Address(one.group, *tp)
                for one in self._members.values()
                for tp in one.tracks
            ),
            *(Address(None, *tp) for tp in self._written),
        ]
        written = written_to(known)
        cases = needs_of(known)
        groups = {name: self._group(name) for name in {one.group for one in cases}}
        return {one: self._result(one, written, groups[one.group]) for one in cases}

    def result(self, case: Address, written: Container[str]) -> Result:
        """
        Return what was found about one case.

        Args:
            case: the group and the partition.
            written: topics for which a journal or the topic itself says what was
                written, perhaps to other partitions only.
        """
        return self._result(case, written, self._group(case.group))

    def _result(self, case: Address, written: Container[str], group: Group) -> Result:
        acknowledged = self._written.get(case.tp) or fleet.Acknowledged()
        return result_of(Case(case, group, acknowledged), written)

    def _group(self, name: str | None) -> Group:
        members = [
            one for (_, group), one in sorted(self._members.items()) if group == name
        ]
        tracks: dict[TopicPartition, dict[str, Track]] = {}
        for one in members:
            for tp, track in one.tracks.items():
                tracks.setdefault(tp, {})[one.name] = track
        holds = {one.name: one.holds for one in members}
        measures = {one.name: one.measures for one in members}
        return Group(name, self._settings, holds, measures, tracks)


def needs_of(addresses: Iterable[Address]) -> dict[Address, frozenset[Address]]:
    """
    Return the cases that entries are about, and the addresses whose entries each needs.

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


def _is_held(settings: Settings, group: str | None) -> bool:
    control = settings.control
    return control is not None and any(one.group == group for one in control.spans)
