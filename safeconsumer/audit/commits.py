"""
Finds commits that one member's own journal proves wrong: A5.

A5: nothing is committed that was not delivered, nothing while the partition is not
owned, and nothing below an earlier commit, unless a seek came between. A commit is
compared with the ownership and the position at its call, whenever its answer comes, and
counts once it is acknowledged.
"""

from attrs import define, frozen

from safeconsumer.audit.entries import Call, Return
from safeconsumer.audit.findings import Finding, Findings, Subject
from safeconsumer.audit.ownerships import Commit, Commits, Epoch

_NOT_OWNED = "committed without owning it"


@frozen
class Place:
    """
    Where a member stands when it asks for a commit.

    Attributes:
        epoch: the ownership, or the last one; None if there was none.
        is_owned: whether the partition is owned.
        position: the offset up to which records were delivered or peeked at; None if
            the position is not known.
        reached: the offset up to which records came to a worker in the ownership;
            before a seek that its program has called since, it may commit that.
    """

    epoch: Epoch | None
    is_owned: bool
    position: int | None
    reached: int


@define(eq=False)
class _Asked:
    """
    A commit, from its call on.

    Attributes:
        commit: the commit.
        epoch: the ownership in which it was asked for; None if there was none yet.
        was_owned: whether that ownership had not ended.
        seeks: how many seeks that ownership had had; -1 if it is of before the last
            one, or its call is not in the journal.
        is_placed: whether the position was known.
        fault: what is wrong with it, or "".
    """

    commit: Commit
    epoch: Epoch | None
    was_owned: bool
    seeks: int
    is_placed: bool
    fault: str = ""


class CommitRule:
    """
    Follows the commits of one member on one partition.

    Args:
        subject: the member and the partition.
        findings: takes what is wrong with them.

    Attributes:
        unplaced: acknowledged commits at positions that nobody knew.
        last_entry: the number of the last entry of a commit.
        strays: its commits before it first had the partition.
        late: commits after the partition was revoked, with the generation that revoked
            it; they are wrong if that generation assigned it to a member.
        seeks: how many seeks the ownership has had.
        departed_in: the generation that revoked the partition last, if that is known.
    """

    def __init__(self, subject: Subject, findings: Findings) -> None:
        self._subject = subject
        self._findings = findings
        self._asked: dict[object, _Asked] = {}
        self._up_to = -1  # in this ownership, since the last seek
        self.unplaced: list[int] = []
        self.last_entry = 0
        self.strays = Commits()
        self.late: list[tuple[int, Finding]] = []
        self.seeks = 0
        self.departed_in: int | None = None

    def gained(self, *, is_given_back: bool) -> None:
        """Begin an ownership, which may be the one before given back."""
        self.seeks = 0
        self._up_to = self._up_to if is_given_back else -1

    def begins_at(self, offset: int) -> None:
        """Note the commit at which the ownership begins."""
        self._up_to = offset

    def sought(self) -> None:
        """Follow a seek: what was committed before may be committed again."""
        self.seeks += 1
        self._up_to = -1

    def called(self, entry: Call, offset: int, place: Place) -> None:
        """Judge a commit of an offset when it is asked for."""
        position = place.position
        commit = self._of(place.epoch).asked(entry.n, offset)
        self.last_entry = entry.n
        is_of_before = position is not None and position < offset <= place.reached
        seeks = -1 if is_of_before else self.seeks
        is_placed = position is not None
        asked = _Asked(commit, place.epoch, place.is_owned, seeks, is_placed)
        self._asked[entry.id] = asked
        if is_of_before:
            return
        if position is not None and offset > position:
            asked.fault = f"committed {offset}, delivered only up to {position}"
        elif offset < self._up_to:
            asked.fault = f"committed {offset}, {self._up_to} was committed before"
        elif not place.is_owned:
            asked.fault = _NOT_OWNED

    def returned(self, entry: Return, offset: int, epoch: Epoch | None) -> None:
        """Follow the answer; a commit that failed changes nothing."""
        asked = self._asked.pop(entry.id, None)
        self.last_entry = entry.n
        if asked is None:
            commit = self._of(epoch).asked(entry.n, offset)
            asked = _Asked(commit, epoch, was_owned=False, seeks=-1, is_placed=True)
        is_done = entry.ok is not False
        self._of(asked.epoch).answered(asked.commit, entry.n, is_done=is_done)
        if not is_done:
            return
        if asked.epoch is not None:
            self._acknowledged(asked, asked.epoch, epoch)
            if not (asked.is_placed or asked.fault):
                self.unplaced.append(offset)
        if asked.fault:
            self._accuse(asked.fault, entry, offset)

    def _acknowledged(self, asked: _Asked, own: Epoch, latest: Epoch | None) -> None:
        own.has_committed |= asked.was_owned
        if own is latest and asked.seeks == self.seeks:
            self._up_to = max(self._up_to, asked.commit.offset)
        if not asked.seeks:
            offset = asked.commit.offset
            low, high = own.sure or (offset, offset)
            own.sure = min(low, offset), max(high, offset)

    def _of(self, epoch: Epoch | None) -> Commits:
        return self.strays if epoch is None else epoch.commits

    def _accuse(self, fault: str, entry: Return, offset: int) -> None:
        found = self._subject.finding("A5", entry, offset, fault)
        if fault == _NOT_OWNED and self.departed_in is not None:
            # A cooperative rebalance revokes in one generation and assigns in the next:
            # in between nobody owns the partition, and its old owner may commit.
            self.late.append((self.departed_in, found))
        else:
            self._findings.add(found)
