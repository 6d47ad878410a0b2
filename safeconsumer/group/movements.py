"""Determines which partitions of a group have been moved by the resets in force."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from attrs import frozen
from kafka import TopicPartition

from safeconsumer.group.facts import HoldRecord, targets_of
from safeconsumer.group.partitions import covered, name_of, partitions_text
from safeconsumer.group.report_wire import MOST_KEPT, place
from safeconsumer.group.view import Member, View
from safeconsumer.holds.explain import counted
from safeconsumer.holds.resets import Target
from safeconsumer.holds.scope import Scope

CANNOT_MOVE = "its client, settings or version forbid it"
"""The reason why a member that reports does not carry out resets."""

_MOST_REASONS = 5
_UNKNOWN = "not known to be read from there"


@frozen(kw_only=True)
class Movement:
    """
    The reset of one partition in a group, with its state.

    The partition counts as moved once the group has committed the target and the owner,
    if there is one, has read the reset: the owner then reads on from the target.

    Attributes:
        tp: the partition.
        offset: the target.
        committed: the group's committed offset; None if there is none, or if it is
            unknown.
        by: the owner of the hold.
        why: the reason why the partition is not moved, or not known to be moved; empty
            if it is moved.
        is_unknown: whether the group has committed the target but no report shows
            whether the owner reads on from there.
    """

    tp: TopicPartition
    offset: int
    committed: int | None
    by: str
    why: str
    is_unknown: bool = False

    @property
    def is_moved(self) -> bool:
        """Whether the group continues reading at the target."""
        return not self.why

    @property
    def name(self) -> str:
        """The partition, as ``orders:3``."""
        return name_of(self.tp)

    def sentence(self) -> str:
        """Describe the movement in a sentence."""
        if self.is_moved:
            return f"moved to {self.offset:,}"
        if self.is_unknown:
            return f"committed at {self.offset:,}, but {_UNKNOWN}: {self.why}"
        return f"to be moved to {self.offset:,}: {self.why}"

    def document(self) -> dict[str, object]:
        """Return the movement as plain JSON values."""
        return {
            "partition": self.name,
            "offset": self.offset,
            "committed": self.committed,
            "by": self.by,
            "is_moved": self.is_moved,
            "why": self.why,
        }


def movements(view: View, scopes: Iterable[Scope] = ()) -> tuple[Movement, ...]:
    """Return the movements of a group, or only those in some scopes, sorted by partition."""
    wanted, targets = tuple(scopes), targets_of(view.lasting)
    found = tuple(TopicPartition(*tp) for tp in sorted(targets))
    return tuple(
        _movement(view, tp, targets[tp])
        for tp in (covered(wanted, found) if wanted else found)
    )


def _movement(view: View, tp: TopicPartition, target: Target) -> Movement:
    committed, owners = view.facts.committed.get(tp), owners_of(view, tp)
    hidden = next(filter(None, map(obstacle, owners)), "")
    return Movement(
        tp=tp,
        offset=target.offset,
        committed=committed,
        by=target.owner,
        why=hidden or _why_not(view, owners, tp, target),
        is_unknown=bool(hidden) and committed == target.offset,
    )


def unmoved(view: View, holds: Iterable[HoldRecord]) -> list[Movement]:
    """Return the movements that the given holds request and that are not done yet."""
    resets = [one for one in holds if one.hold is not None and one.hold.reset]
    owners = {one.owner for one in resets}
    found = movements(view, [one.scope for one in resets]) if resets else ()
    return [one for one in found if one.by in owners and not one.is_moved]


def readers(view: View) -> tuple[Member, ...]:
    """Return the members that read from the group's committed offsets: all except streams."""
    return tuple(one for one in view.present if not one.is_stream)


def owners_of(view: View, tp: TopicPartition) -> list[Member]:
    """Return the owners of a partition, except streams, which never move it."""
    return [one for one in view.owners(tp) if not one.is_stream]


def obstacle(one: Member) -> str:
    """Return why a member will not reset the partitions that it owns; empty if it will."""
    if one.report is None or one.is_lost:
        return f"{one.name} {one.verdict.sentence}"
    if one.report.resets is None:
        return f"{one.name} moves nothing: {CANNOT_MOVE}"
    return ""


def obstacle_without_owner(view: View) -> str:
    """
    Return why none of a group's readers will reset a partition without an owner.

    The result is empty if a reader will reset it, or if the group has no readers.
    """
    whys = [obstacle(one) for one in readers(view)]
    if not whys or not all(whys):
        return ""
    return f"no member owns it, and none moves it: {'; '.join(whys[:_MOST_REASONS])}"


def _why_not(
    view: View, owners: Sequence[Member], tp: TopicPartition, target: Target
) -> str:
    committed = view.facts.committed.get(tp)
    for one in owners:
        if why := _reported_obstacle(view, one, tp, target):
            return why
    if committed == target.offset:
        return ""
    if not view.facts.has_committed:
        return "the group's committed offsets cannot be read"
    if view.unsettled:
        return f"{view.unsettled}; its owner moves it after that"
    if not owners:
        return _unowned(view, tp, target)
    return f"{owners[0].name} has not committed it yet"


def _unowned(view: View, tp: TopicPartition, target: Target) -> str:
    if tp.topic in view.no_longer_read:
        until = "until one does, or until the group has no member"
        return f"no member of the group reads {tp.topic}: it is not moved {until}"
    if why := obstacle_without_owner(view):
        return why
    again = "" if readers(view) else "; run reset-offsets again to move it now"
    # The next owner will know the topic's current id, which a view does not.
    unless = ", unless its topic was recreated since" if target.topic_id else ""
    return f"no member owns it; its next owner moves it first{unless}{again}"


def _reported_obstacle(
    view: View, one: Member, tp: TopicPartition, target: Target
) -> str:
    report = one.report
    if report is None:
        return ""
    begins = f"{place((tp.topic, tp.partition))} "
    for line in report.resets or ():
        if line.startswith(begins):
            return f"at {one.name} it {line.removeprefix(begins)}"
    if len(report.resets or ()) >= MOST_KEPT:
        return (
            f"{one.name} has so many other partitions to move that it does not name "
            "this one"
        )
    topics = view.ends or report.applied
    if any(report.applied.get(name, 0) <= target.record for name in topics):
        return f"{one.name} has not read the reset yet"
    return ""


def reasons(several: Iterable[Movement], state: str = "not moved yet") -> Iterator[str]:
    """Yield a sentence for each reason, with the partitions that it affects."""
    unknown = f"committed at the target, but {_UNKNOWN}"
    found: dict[tuple[str, str], list[TopicPartition]] = {}
    for one in several:
        now = unknown if one.is_unknown else state
        found.setdefault((now, one.why), []).append(one.tp)
    for (now, why), tps in tuple(found.items())[:_MOST_REASONS]:
        verb = "is" if len(tps) == 1 else "are"
        yield f"{partitions_text(tps)} {verb} {now}: {why}"
    if (more := len(found) - _MOST_REASONS) > 0:
        yield f"and {counted(more, 'other reason')}"


def summaries(several: Iterable[Movement]) -> Iterator[str]:
    """Yield a line of text for each topic and hold owner."""
    moved: Counter[tuple[str, str]] = Counter()
    unknown: Counter[tuple[str, str]] = Counter()
    every: Counter[tuple[str, str]] = Counter()
    for one in several:
        every[one.tp.topic, one.by] += 1
        moved[one.tp.topic, one.by] += one.is_moved
        unknown[one.tp.topic, one.by] += one.is_unknown
    for (topic, by), count in every.items():
        more = f", unknown {unknown[topic, by]}" if unknown[topic, by] else ""
        yield f"{topic}  moved {moved[topic, by]} of {count}{more} by {by}"
