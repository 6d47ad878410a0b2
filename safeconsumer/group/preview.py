"""
Describes what placing or lifting holds would do, before anything is written.

Commands, pages and programs all use these sentences and this document.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Protocol

from attrs import frozen
from kafka import TopicPartition

from safeconsumer.errors.base import HoldSettingError
from safeconsumer.group import scopes
from safeconsumer.group.board import OPERATOR
from safeconsumer.group.documents import hold_document
from safeconsumer.group.durations import seconds_of, words_of
from safeconsumer.group.facts import HoldRecord
from safeconsumer.group.partitions import covered, partitions_text
from safeconsumer.group.publisher import Change, changes, new_hold
from safeconsumer.group.verdicts import Level
from safeconsumer.group.view import View
from safeconsumer.holds.explain import counted, utc
from safeconsumer.holds.hold import checked_reason
from safeconsumer.holds.scope import Everything, Scope

# A level (``note``, ``waiting``, ``unknown`` or ``alarm``) and a sentence.
Point = tuple[str, str]


class Cluster(Protocol):
    """Answers what no view has. Unknown values are left out of its answers."""

    def groups(self) -> Sequence[str]:
        """Return the names of all groups."""

    def topics(self) -> Sequence[str]:
        """Return the names of all topics."""

    def retention(self, names: Sequence[str], /) -> Mapping[str, float | None]:
        """Return after how many seconds topics delete records; None for never."""


# ---------------------------------------------------------------- placing


@frozen(kw_only=True)
class Wish:
    """
    What an operator wants to hold, checked as far as that needs no cluster.

    Attributes:
        group: the group that shall obey.
        owner: the owner of the holds.
        scopes: what to hold.
        reason: why, as text for people.
        seconds: for how long, counted from when it is placed; None until it is resumed.
    """

    group: str
    owner: str
    scopes: tuple[Scope, ...]
    reason: str
    seconds: float | None


def wish_of(
    *,
    group: str,
    owner: str,
    texts: Iterable[str],
    reason: str,
    for_: str | None,
) -> Wish:
    """
    Read what was typed to hold something.

    Raises:
        HoldSettingError: the group, the reason or the duration is not acceptable.
        ScopeSyntaxError: a scope is not one, or there is no scope.
        MissingExtraError: google-re2 is missing, and a scope is a pattern.
    """
    why = checked_reason(reason) or ""
    if not why.strip():
        message = "give a reason: people on call will need it"
        raise HoldSettingError(message)
    return Wish(
        group=group,
        owner=owner,
        scopes=scopes.scopes_of(texts, group),
        reason=why,
        seconds=duration_of(for_),
    )


def duration_of(for_: str | None) -> float | None:
    """
    Read ``--for`` as it was typed; None for no end.

    Raises:
        HoldSettingError: it is not a duration.
    """
    try:
        return None if for_ is None else seconds_of(for_)
    except ValueError as error:
        message = f"for: {error}"
        raise HoldSettingError(message) from error


@frozen(kw_only=True)
class Placing:
    """
    A wish together with the holds that exist already.

    Attributes:
        view: the group.
        wish: what to hold.
        changes: the records to write, one for each scope.
        skew: seconds by which members may lift the holds later.
        covers: the partitions of the group that the holds cover now.
        own: the existing holds with the same owner and scope.
        is_extending: whether they shall last longer, counted from now; then none of
            them is the same.
    """

    view: View
    wish: Wish
    changes: tuple[Change, ...]
    skew: float
    covers: tuple[TopicPartition, ...]
    own: Mapping[Change, HoldRecord]
    is_extending: bool = False

    @property
    def replaces(self) -> tuple[HoldRecord, ...]:
        """The existing holds of ``own`` that differ from the wish, and have not ended."""
        now = self.view.times.proven
        return tuple(
            one
            for change, one in self.own.items()
            if not self._is_same(change, one) and not one.is_over(now)
        )

    @property
    def unchanged(self) -> tuple[HoldRecord, ...]:
        """The existing holds that are the same, and have ended by no clock."""
        return tuple(
            one
            for change, one in self.own.items()
            if self._is_same(change, one) and self._is_lasting(one)
        )

    @property
    def renewed(self) -> tuple[HoldRecord, ...]:
        """The existing holds that are the same, and that have ended, or may have."""
        return tuple(
            one
            for change, one in self.own.items()
            if self._is_same(change, one) and not self._is_lasting(one)
        )

    def _is_same(self, change: Change, one: HoldRecord) -> bool:
        wanted, hold = change.hold, one.hold
        if wanted is None or hold is None or self.is_extending:
            return False
        return (wanted.reason, wanted.ttl_ms) == (hold.reason, hold.ttl_ms)

    def _is_lasting(self, one: HoldRecord) -> bool:
        if one.hold is None or one.hold.ttl_ms is None:
            return True
        here = self.view.times.here
        return one.expires_at is not None and not one.is_over(here)

    def todo(self, *, is_replacing: bool) -> tuple[Change, ...]:
        """Return what to write; existing holds are written only if they are replaced."""
        stays = set() if is_replacing else {*self.unchanged, *self.replaces}
        keys = {one.key for one in stays}
        return tuple(one for one in self.changes if one.key not in keys)

    @property
    def others(self) -> tuple[HoldRecord, ...]:
        """The holds of other owners that cover some of the same partitions."""
        own, named = tuple(self.own.values()), set(map(str, self.wish.scopes))
        return tuple(
            one
            for one in self.view.holds
            if one not in own
            and (one.key.scope in named or any(one.covers(tp) for tp in self.covers))
        )


def placing(
    view: View,
    wish: Wish,
    *,
    skew: float,
    host: str | None = None,
    principal: str | None = None,
) -> Placing:
    """
    Compare a wish with the existing holds.

    Args:
        view: the group.
        wish: what to hold.
        skew: seconds by which members may lift the holds later.
        host: where it is placed, shown with the hold.
        principal: how its writer is logged in, shown with the hold.

    Raises:
        HoldSettingError: it would last for over ten years.
    """
    hold = new_hold(wish.reason, wish.seconds, host, principal)
    wanted = changes(wish.group, wish.owner, map(str, wish.scopes), hold)
    existing = own_of(view, wanted)
    own = {change.held_since(one.since): one for change, one in existing.items()}
    stays = {change.key: change for change in own}
    wanted = tuple(stays.get(one.key, one) for one in wanted)
    return Placing(
        view=view,
        wish=wish,
        changes=wanted,
        skew=skew,
        covers=covered(wish.scopes, view.consumed),
        own=own,
    )


def own_of(view: View, wanted: Iterable[Change]) -> dict[Change, HoldRecord]:
    """Return the existing operators' holds with the same owner and scope."""
    holds = {one.key: one for one in view.holds if one.source == OPERATOR}
    return {one: holds[one.key] for one in wanted if one.key in holds}


# ---------------------------------------------------------------- what needs a yes


class Consent(Enum):
    """What an operator must agree to first; on the command line, the flag of this name."""

    FUTURE = "future"
    REPLACE = "replace"
    EVERYTHING = "yes"


@frozen
class Objection:
    """
    A reason why a hold is not placed unless the operator agrees.

    Attributes:
        consent: the kind of agreement.
        what: the reason as text; empty if it is known already.
        agreed: the text that is agreed to.
    """

    consent: Consent
    what: str
    agreed: str


def objections(cluster: Cluster, one: Placing) -> Iterator[Objection]:
    """Yield what keeps a wish from being carried out at once."""
    view, group = one.view, one.wish.group
    if not view.is_known:
        meant = scopes.near(group, cluster.groups()) or "; look for a typing error"
        said = f"no group {group!r} here{meant}"
        yield Objection(Consent.FUTURE, said, f"Hold {group} before it exists")
    elif said := scopes.mistakes(view, one.wish.scopes, cluster.topics):
        agreed = "Hold what the group does not consume now"
        yield Objection(Consent.FUTURE, said, agreed)
    yield from replacing(one)
    if any(isinstance(scope, Everything) for scope in one.wish.scopes):
        agreed = f"Hold all {counted(len(one.covers), 'partition')} of {group}"
        yield Objection(Consent.EVERYTHING, "", agreed)


def replacing(one: Placing) -> Iterator[Objection]:
    """Yield which holds would be replaced."""
    if replaces := one.replaces:
        rows = "; ".join(" ".join(own.cells()) for own in replaces)
        named = ", ".join(own.key.scope for own in replaces)
        agreed = f"Replace what you hold already: {named}"
        yield Objection(Consent.REPLACE, f"held already: {rows}", agreed)


# ---------------------------------------------------------------- what it would do


@frozen(kw_only=True)
class Preview:
    """
    What placing holds would do.

    Attributes:
        placing: the wish with the existing holds.
        objections: what the operator must agree to first.
        disobeying: members that are not known to obey, and what is unknown of them.
        waiting: records that wait there already, after the committed offset; None if
            that could not be read for every partition.
        retention: seconds for which each topic keeps records; None without a limit.
    """

    placing: Placing
    objections: tuple[Objection, ...]
    disobeying: tuple[Point, ...]
    waiting: int | None
    retention: Mapping[str, float | None]

    @property
    def to_agree(self) -> str | None:
        """The text of what the operator must agree to first; None if nothing."""
        return "; ".join(one.agreed for one in self.objections) or None

    @property
    def points(self) -> tuple[Point, ...]:
        """Describe it to people, line by line."""
        one = self.placing
        shown = partitions_text(one.covers) or "nothing yet"
        level = "note" if one.covers else "waiting"
        return (
            (level, f"would cover {counted(len(one.covers), 'partition')}: {shown}"),
            _waiting(self.waiting, "records wait there already"),
            *self.disobeying,
            *(("waiting", why.what) for why in self.objections if why.what),
            *(
                ("note", f"held already, and stays as it is: {' '.join(own.cells())}")
                for own in one.unchanged
            ),
            *(
                (
                    "note",
                    f"would be renewed, as it may have ended: {' '.join(own.cells())}",
                )
                for own in one.renewed
            ),
            self._end(),
            *self._kept(),
        )

    def _end(self) -> Point:
        one = self.placing
        seconds = one.wish.seconds
        if seconds is None:
            return "waiting", "would last until it is resumed"
        now = one.view.times.now
        at = "" if now is None else f", until {utc(now + seconds)}"
        late = f", or {words_of(one.skew)} longer" if one.skew >= 1 else ""
        return "note", f"would last {words_of(seconds)}{at}{late}"

    def _kept(self) -> Iterator[Point]:
        limited = {
            one: kept for one, kept in self.retention.items() if kept is not None
        }
        if limited:
            topic, kept = min(limited.items(), key=lambda one: one[1])
            yield self._retention(topic, kept)
        topics = dict.fromkeys(tp.topic for tp in self.placing.covers)
        if unread := [name for name in topics if name not in self.retention]:
            names = ", ".join(unread)
            yield "unknown", f"how long records are kept is unknown for {names}"

    def _retention(self, topic: str, kept: float) -> Point:
        said = f"{topic} deletes records after {words_of(kept)}"
        seconds = self.placing.wish.seconds
        if seconds is None or seconds + self.placing.skew >= kept:
            older = "; records that wait now go first" if self.waiting != 0 else ""
            return "waiting", f"retention ends BEFORE the hold does: {said}{older}"
        if self.waiting != 0:
            said += "; records that wait now go first"
        return "note", f"retention by age ends later: {said}"

    def document(self) -> dict[str, Any]:
        """Return the preview as plain JSON values."""
        one = self.placing
        return {
            "points": _points_document(self.points),
            "covers": _names(one.covers),
            "waiting": self.waiting,
            "others": list(map(hold_document, one.others)),
            "replaces": list(map(hold_document, one.replaces)),
            "unchanged": list(map(hold_document, one.unchanged)),
            "seconds": one.wish.seconds,
            "to_agree": self.to_agree,
        }


def preview(cluster: Cluster, one: Placing, against: Iterable[Objection]) -> Preview:
    """
    Ask the cluster for what is needed, and describe what placing it would do.

    Args:
        cluster: answers the questions.
        one: what is to be placed.
        against: what the operator must agree to first.
    """
    covers = one.covers
    return Preview(
        placing=one,
        objections=tuple(against),
        disobeying=tuple(_disobeying(one.view, covers)),
        waiting=_sum(one.view.lags, covers),
        retention=cluster.retention(sorted({tp.topic for tp in covers})),
    )


def _disobeying(view: View, covers: Sequence[TopicPartition]) -> Iterator[Point]:
    wanted = frozenset(covers)
    for one in view.everybody if covers else ():
        if not one.obeys:
            owned = one.owned & wanted
            flows = f"; {partitions_text(owned)} may go on flowing" if owned else ""
            is_loud = owned and one.verdict.level is Level.UNKNOWN
            said = f"would not obey: {one.name} {one.verdict.sentence}{flows}"
            yield "alarm" if is_loud else "waiting", said
    if covers and view.unsettled:
        yield "unknown", f"who obeys is unknown: {view.unsettled}"
    for why in view.unread:
        yield "unknown", f"unknown: {why}"


# ---------------------------------------------------------------- lifting


@frozen(kw_only=True)
class Lifting:
    """
    What lifting holds would do.

    Attributes:
        holds: the holds.
        covers: the partitions of the group that flow again.
        kept: its partitions that other holds still cover.
        others: these other holds.
        waiting: records that wait in the partitions that flow again; None if unknown.
    """

    holds: tuple[HoldRecord, ...]
    covers: tuple[TopicPartition, ...]
    kept: tuple[TopicPartition, ...]
    others: tuple[HoldRecord, ...]
    waiting: int | None

    @property
    def points(self) -> tuple[Point, ...]:
        """Describe it to people, line by line."""
        points: list[Point] = []
        if self.covers:
            shown = partitions_text(self.covers)
            points.append(("note", f"{_do(self.covers, 'flow')} again: {shown}"))
            points.append(_waiting(self.waiting, "records come at once"))
        else:
            points.append(("waiting", "nothing begins to flow by it now"))
        if self.kept:
            points.append(("waiting", f"{_do(self.kept, 'stay')} held by others"))
        return tuple(points)

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {
            "points": _points_document(self.points),
            "covers": _names(self.covers),
            "waiting": self.waiting,
            "others": list(map(hold_document, self.others)),
        }


def lifting(view: View, holds: Collection[HoldRecord]) -> Lifting:
    """Describe what lifting holds of a group would do."""
    covers = covered(holds, view.consumed)
    others = tuple(
        one
        for one in view.holds
        if one not in holds and any(one.covers(tp) for tp in covers)
    )
    kept = covered(others, covers)
    free = tuple(tp for tp in covers if tp not in frozenset(kept))
    return Lifting(
        holds=tuple(holds),
        covers=free,
        kept=kept,
        others=others,
        waiting=_sum(view.lags, free),
    )


# ---------------------------------------------------------------- words


def _sum(
    lags: Mapping[TopicPartition, int], partitions: Sequence[TopicPartition]
) -> int | None:
    found = [lags[tp] for tp in partitions if tp in lags]
    return sum(found) if len(found) == len(partitions) else None


def _waiting(count: int | None, what: str) -> Point:
    if count is None:
        return "unknown", f"how many {what} is unknown"
    return "note", f"{count:,} {what}"


def _do(partitions: Sequence[TopicPartition], verb: str) -> str:
    said = counted(len(partitions), "partition")
    return f"{said} {verb}{'s' if len(partitions) == 1 else ''}"


def _names(partitions: Iterable[TopicPartition]) -> list[str]:
    return [f"{tp.topic}:{tp.partition}" for tp in partitions]


def _points_document(points: Iterable[Point]) -> list[dict[str, str]]:
    return [{"level": level, "sentence": text} for level, text in points]
