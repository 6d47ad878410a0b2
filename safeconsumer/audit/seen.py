"""Collects what the checker followed, for the timeline, so that both say the same."""

from collections.abc import Iterator, Mapping

from attrs import evolve

from safeconsumer.audit.entries import Deliver, Entry
from safeconsumer.audit.findings import Address
from safeconsumer.audit.holding import Change, Placed
from safeconsumer.audit.members import Member
from safeconsumer.audit.tracks import Track


class Seen:
    """
    Sees what members do, as :class:`safeconsumer.audit.members.Watch` says.

    Attributes:
        tracks: what members did, by group and partition, and by member.
        runs: the deliveries of each track.
    """

    def __init__(self) -> None:
        self.tracks: dict[Address, dict[str, Track]] = {}
        self.runs: dict[Track, list[Deliver]] = {}
        self._members: dict[tuple[str, str], Member] = {}
        self._ended: dict[Member, list[Placed]] = {}

    def track(self, track: Track, entry: Entry) -> None:
        """See an entry about one partition."""
        self.tracks.setdefault(track.case, {})[track.member] = track
        if isinstance(entry, Deliver):
            self.runs.setdefault(track, []).append(entry)

    def holds(self, member: Member, change: Change) -> None:
        """See holds that were placed or ended."""
        self._members[member.name, member.group] = member
        self._ended.setdefault(member, []).extend(change.ended)

    def of(self, case: Address) -> Mapping[str, Track]:
        """Return what each member did with one partition in one group."""
        return self.tracks.get(case, {})

    def held(self, case: Address) -> Iterator[tuple[str, Placed]]:
        """
        Yield the holds of members over one partition, while they owned it.

        Each is with its member; ``at`` and ``until`` are when it began and ended there.
        """
        for name, track in self.of(case).items():
            member = self._members.get((name, case.group or ""))
            if member is None:
                continue
            every = [*self._ended[member], *member.holds.placed]
            own = [one for one in every if one.covers(case.tp)]
            for epoch in track.epochs:
                for one in own:
                    start, end = max(one.at, epoch.at), min(one.until, epoch.over)
                    if start < end:
                        yield name, evolve(one, at=start, until=end)
