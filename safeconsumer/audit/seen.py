"""Keeps what the checker followed, for the timeline, so that both say the same."""

from collections.abc import Iterator, Mapping, Sequence

from attrs import evolve

from safeconsumer.audit.entries import Deliver, Entry, Other
from safeconsumer.audit.findings import Address
from safeconsumer.audit.holding import Change, Placed
from safeconsumer.audit.members import Member
from safeconsumer.audit.tracks import Track
from safeconsumer.journal.format import tp_text


class Seen:
    """Sees what members do, as :class:`safeconsumer.audit.members.Watch` says."""

    def __init__(self) -> None:
        self._members: dict[tuple[str, str], Member] = {}
        self._runs: dict[tuple[str, str, str], list[Deliver]] = {}
        self._ended: dict[Member, list[Placed]] = {}

    def entry(self, member: Member, entry: Entry | Other) -> None:
        """See an entry that was followed."""
        self._members[member.name, member.group] = member
        if isinstance(entry, Deliver):
            key = member.name, member.group, entry.tp
            self._runs.setdefault(key, []).append(entry)

    def holds(self, member: Member, change: Change) -> None:
        """See holds that were placed or ended."""
        self._ended.setdefault(member, []).extend(change.ended)

    def tracks(self, case: Address) -> Mapping[str, Track]:
        """Return what each member did with one partition in one group."""
        return {
            name: member.tracks[case.tp]
            for (name, group), member in self._members.items()
            if group == case.group and case.tp in member.tracks
        }

    def runs(self, track: Track) -> Sequence[Deliver]:
        """Return the deliveries of one member and one partition."""
        case = track.case
        return self._runs.get((track.member, case.group or "", tp_text(case.tp)), ())

    def held(self, case: Address) -> Iterator[tuple[str, Placed]]:
        """
        Yield the holds of members over one partition, while they owned it.

        Each is with its member; ``at`` and ``until`` are when it began and ended there.
        """
        for name, track in self.tracks(case).items():
            member = self._members[name, case.group or ""]
            every = [*self._ended.get(member, ()), *member.holds.placed]
            own = [one for one in every if one.covers(case.tp)]
            for epoch in track.epochs:
                for one in own:
                    start, end = max(one.at, epoch.at), min(one.until, epoch.over)
                    if start < end:
                        yield name, evolve(one, at=start, until=end)
