"""
Determines the offsets to which a held group is reset, with one round of broker queries.

The targets become part of the owner's holds that cover the partitions; these holds no
longer expire. :mod:`safeconsumer.group.movements` determines which resets are done.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from uuid import UUID

import kafka.errors as kafka_errors
from attrs import evolve, frozen
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient, OffsetSpec
from kafka.structs import OffsetAndMetadata

from safeconsumer._kafka.pausing.subscription import id_text
from safeconsumer.errors.base import HoldSettingError
from safeconsumer.group.durations import parse_moment
from safeconsumer.group.facts import HoldRecord, targets_of
from safeconsumer.group.movements import (
    Movement,
    movements,
    obstacle,
    obstacle_without_owner,
    owners_of,
    readers,
    reasons,
)
from safeconsumer.group.partitions import (
    Coverage,
    covered,
    name_of,
    names,
    partitions_text,
)
from safeconsumer.group.plan import (
    Cluster,
    Consent,
    Need,
    Plan,
    Point,
    is_later,
    refusal,
)
from safeconsumer.group.publisher import Change
from safeconsumer.group.report_wire import STREAM
from safeconsumer.group.scopes import mistakes, suggestion
from safeconsumer.group.view import View
from safeconsumer.group.wire import (
    MAX_VALUE_BYTES,
    ControlHold,
    ControlKey,
    Reset,
    encode_hold,
)
from safeconsumer.holds.explain import utc
from safeconsumer.holds.hold import OPERATOR
from safeconsumer.holds.scope import Everything, Pattern, Scope

_ASK_TIMEOUT_MS = 10_000
# The maximum number of logs whose offset ranges a refused plan lists.
_MOST_LOGS = 5
# The id that a broker reports for a topic from before Kafka 2.8.
_NO_ID = UUID(int=0)


# ---------------------------------------------------------------- targets


@frozen(kw_only=True)
class ResetTarget:
    """
    The target of a reset as an operator typed it; at most one of the values is set.

    Attributes:
        text: the target as text; for ``earliest`` and ``latest``, the other values are
            None.
        offset: the offset.
        back: the number of offsets to go back from the committed offset.
        at_ms: the time, in milliseconds since the epoch.
    """

    text: str
    offset: int | None = None
    back: int | None = None
    at_ms: int | None = None


def parse_target(text: str, name: str = "to") -> ResetTarget:
    """
    Parse the target of a reset.

    Args:
        text: the target.
        name: the field of a form, or the option, that the message names.

    Raises:
        HoldSettingError: the text is not a target; the message shows valid forms.
    """
    typed = text.strip()
    if typed in {"earliest", "latest"}:
        return ResetTarget(text=typed)
    if number := re.fullmatch(r"(-?)([0-9]{1,18})", typed, re.ASCII):
        value = int(number[2])
        return (
            ResetTarget(text=typed, back=value)
            if number[1]
            else ResetTarget(text=typed, offset=value)
        )
    try:
        return ResetTarget(text=typed, at_ms=int(parse_moment(typed) * 1000))
    except ValueError:
        message = (
            f"{name}: not {text[:60]!r}: write earliest, latest, an offset such as 1200, "
            "-100 for a hundred offsets before what is committed, or a time such as "
            "2026-11-27T10:00, which is UTC unless it says otherwise, or 2h for two "
            "hours ago"
        )
        raise HoldSettingError(message) from None


# ---------------------------------------------------------------- logs


@frozen(kw_only=True)
class PartitionMove:
    """
    A partition's reset target, with the offsets that it is compared with.

    Attributes:
        start: the first offset in the partition's log.
        end: the offset after the last record.
        committed: the group's committed offset; None if there is none.
        offset: the target; None if it is relative to a committed offset that does not
            exist.
    """

    start: int
    end: int
    committed: int | None
    offset: int | None

    @property
    def is_outside(self) -> bool:
        """Whether the target is outside the log."""
        return self.offset is not None and not self.start <= self.offset <= self.end


def reset_action(
    admin: KafkaAdminClient,
    view: View,
    *,
    owner: str,
    scopes: tuple[Scope, ...],
    to: ResetTarget,
) -> "ResetTo":
    """
    Return the action with the target offset of each partition that the scopes cover.

    Args:
        admin: the client that queries brokers.
        view: the group, with its committed offsets.
        owner: the owner of the holds.
        scopes: the scopes to move.
        to: the target. ``latest``, or a time after the last
            record, means the end of the completed transactions, because a group that
            reads only committed records must not skip open transactions.

    Raises:
        KafkaError: a broker does not answer, or a partition does not exist.
    """
    left = _left(view, scopes)
    several = tuple(tp for tp in covered(scopes, view.consumed) if tp.topic not in left)

    def offsets_at(at: int, isolation: str = "read_uncommitted") -> dict[Any, int]:
        found = admin.list_partition_offsets(
            dict.fromkeys(several, at), isolation, timeout_ms=_ASK_TIMEOUT_MS
        )
        return {tp: one.offset for tp, one in found.items()}

    starts = offsets_at(OffsetSpec.EARLIEST)
    committed, wanted = view.facts.committed, starts
    topic_ids = _topic_ids(admin, {tp.topic for tp in several})
    if to.offset is not None:
        wanted = dict.fromkeys(several, to.offset)
    elif to.back is not None:
        wanted = {tp: committed[tp] - to.back for tp in several if tp in committed}
        wanted |= _asked_already(view, owner, to, topic_ids)
    elif to.text != "earliest":
        wanted = offsets_at(OffsetSpec.LATEST, "read_committed")
        if to.at_ms is not None:
            later = offsets_at(to.at_ms)
            wanted |= {tp: at for tp, at in later.items() if at >= 0}
    # requested last, because the logs may grow in the meantime
    ends = offsets_at(OffsetSpec.LATEST)
    return ResetTo(
        group=view.group,
        owner=owner,
        scopes=scopes,
        asked=to.text,
        places={
            tp: PartitionMove(
                start=starts[tp],
                end=ends[tp],
                committed=committed.get(tp),
                offset=wanted.get(tp),
            )
            for tp in several
        },
        topic_ids=topic_ids,
    )


def _left(view: View, scopes: tuple[Scope, ...]) -> list[str]:
    """
    Return the topics to leave out: no member reads them, and no scope names them.

    While the group has members, nobody would carry out a reset of these topics.
    """
    if view.unsettled:
        return []
    named = [one for one in scopes if not isinstance(one, Everything | Pattern)]
    kept = {tp.topic for tp in covered(named, view.consumed)}
    wide = {tp.topic for tp in covered(scopes, view.consumed)}
    return [one for one in view.no_longer_read if one in wide - kept]


def _asked_already(
    view: View, owner: str, to: ResetTarget, topic_ids: Mapping[str, str]
) -> dict[TopicPartition, int]:
    """
    Return the targets in an owner's holds for which the owner typed the same text.

    Targets of a topic that has been recreated since are left out, because they belong
    to the deleted topic.
    """
    same = [
        evolve(one, hold=evolve(one.hold, reset=_typed_as(one.hold.reset, to.text)))
        for one in view.lasting
        if one.key.owner == owner
        and one.hold is not None
        and one.hold.reset is not None
    ]
    return {
        TopicPartition(*tp): one.offset
        for tp, one in targets_of(same).items()
        if one.topic_id in {None, topic_ids.get(tp[0], one.topic_id)}
    }


def _typed_as(reset: Reset, typed: str) -> Reset:
    """Return the reset, with only the targets for which this text was typed."""
    known = reset.typed()
    to = tuple(one for one in reset.to if known.get(one[:2]) == typed)
    return evolve(reset, to=to)


def _topic_ids(admin: KafkaAdminClient, names: Iterable[str]) -> dict[str, str]:
    """Return the topics' ids in Kafka's notation, where the broker knows them."""
    found = {}
    for one in admin.describe_topics(sorted(names)):
        known = UUID(str(one.get("topic_id") or _NO_ID))
        if not one["error_code"] and known != _NO_ID:
            found[one["name"]] = id_text(known)
    return found


def commit_for_empty_group(
    admin: KafkaAdminClient, view: View, scopes: Iterable[Scope]
) -> None:
    """
    Commit the targets for a group that has no members and no reporting readers.

    Kafka refuses such a commit as soon as the group has a member, which then moves its
    partitions itself.

    Raises:
        KafkaError: this user may not commit for the group, or a broker does not answer.
    """
    if readers(view) or view.unsettled:
        return
    left = {
        one.tp: OffsetAndMetadata(one.offset, "", -1)
        for one in movements(view, scopes)
        if one.why
    }
    answers = admin.alter_group_offsets(view.group, left) if left else {}
    for tp, error in answers.items():
        if issubclass(error, kafka_errors.AuthorizationError):
            what = f"{name_of(tp)} of {view.group}: no right to commit it"
            raise error(what)


# ---------------------------------------------------------------- the action


@frozen(kw_only=True)
class ResetTo:
    """
    Resets a group to other offsets while the operator's holds cover it.

    Attributes:
        group: the group.
        owner: the owner of the holds.
        scopes: the scopes to move.
        asked: the target as it was typed.
        places: by partition, the target and the log's offsets as the brokers reported
            them.
        topic_ids: topics with their ids in Kafka's notation.
    """

    group: str
    owner: str
    scopes: tuple[Scope, ...]
    asked: str
    places: Mapping[TopicPartition, PartitionMove]
    topic_ids: Mapping[str, str]

    def _over(self, view: View) -> dict[TopicPartition, HoldRecord]:
        """Return, by partition, the first of the owner's holds that covers the partition."""
        # To this version, a key from a later version covers everything, but only the
        # later version can write such a key.
        held = [
            one
            for one in view.lasting
            if one.key.owner == self.owner and not one.key.extra
        ]
        holding = Coverage(held)
        found = ((tp, holding.covering(tp)) for tp in self.places)
        return {tp: several[0] for tp, several in found if several}

    def keys(self, view: View, /) -> Iterator[ControlKey]:
        """Return the keys of the holds that cover the partitions to reset."""
        over = self._over(view)
        return (
            one.key for tp, one in over.items() if self.places[tp].offset is not None
        )

    def decide(self, plan: Plan, cluster: Cluster, /) -> Plan:
        """Return the plan that writes the targets into the holds."""
        view, over = plan.view, self._over(plan.view)
        to: dict[ControlKey, dict[TopicPartition, int]] = {}
        for tp, at in self.places.items():
            if tp in over and at.offset is not None:
                to.setdefault(over[tp].key, {})[tp] = at.offset
        changes = tuple(self._moved_by(one, to[one.key]) for one in plan.own)
        plan = evolve(plan, changes=changes, is_done=self._stands(view))
        bare = [tp for tp in self.places if tp not in over]
        needs = (
            *self._no_places(view, cluster),
            *self._refusals(plan, bare),
            *self._not_moving(plan),
        )
        return evolve(plan, needs=needs)

    def _moved_by(self, own: HoldRecord, to: Mapping[TopicPartition, int]) -> Change:
        hold = own.hold or ControlHold()
        known = hold.reset or Reset(())
        ids = {**dict(known.topic_ids), **self.topic_ids}
        recreated = {topic for topic, one in known.topic_ids if ids[topic] != one}
        places = {
            (topic, number): at
            for topic, number, at in known.to
            if topic not in recreated
        }
        places |= {(tp.topic, tp.partition): at for tp, at in to.items()}
        topics = {topic for topic, _ in places}
        typed = known.typed() | dict.fromkeys(to, self.asked)
        texts = {tp: typed.get(tp, "") for tp in places}
        is_same = len(set(texts.values())) == 1
        written = Reset(
            tuple((*tp, at) for tp, at in sorted(places.items())),
            tuple(sorted((name, one) for name, one in ids.items() if name in topics)),
            self.asked if is_same else "",
            ()
            if is_same
            else tuple((*tp, one) for tp, one in sorted(texts.items()) if one),
        )
        changed = Change(own.key, evolve(hold, reset=written, ttl_ms=None))
        return changed.held_since(own.since)

    def _stands(self, view: View) -> bool:
        known, owner = targets_of(view.lasting), OPERATOR + self.owner
        return bool(self.places) and all(
            (one := known.get(tp)) is not None
            and (one.owner, one.offset) == (owner, at.offset)
            and one.topic_id == self.topic_ids.get(tp.topic)
            for tp, at in self.places.items()
        )

    def _no_places(self, view: View, cluster: Cluster) -> Iterator[Need]:
        """Yield the reason why no partition, or not every named partition, can be reset."""
        if not view.is_known:
            why = f"unknown group {self.group!r}{suggestion(self.group, cluster.groups())}"
            yield refusal(why, "look for a typing error")
        elif why := mistakes(view, self.scopes, cluster.topics):
            yield refusal(why, "look for a typing error")
        elif not self.places and (left := _left(view, self.scopes)):
            why = f"no member of the group reads {', '.join(left)}"
            yield refusal(why, "name it to move it anyway")
        elif not self.places:
            yield refusal(f"{self.group} consumes nothing", "nothing can be moved")

    def _refusals(self, plan: Plan, bare: list[TopicPartition]) -> Iterator[Need]:
        if bare:
            why = f"{partitions_text(bare)} is not held by {self.owner}"
            yield refusal(why, "pause it first, and wait until quiet")
        if unset := [tp for tp, at in self.places.items() if at.offset is None]:
            why = f"nothing is committed for {partitions_text(unset)} to count from"
            yield refusal(why, "give an offset, or a time")
        if why := "; ".join(self._outside()):
            yield refusal(why, "choose an offset inside the log")
        if why := "; ".join(self._moved_by_others(plan.view)):
            yield refusal(why, "wait until it is moved")
        if later := [one.key.scope for one in plan.own if is_later(one)]:
            yield refusal(f"a later version holds {', '.join(later)}", "upgrade first")
        written = (one.hold for one in plan.changes if one.hold is not None)
        if any(len(encode_hold(one)) > MAX_VALUE_BYTES for one in written):
            why = "so many partitions do not fit into the record of one hold"
            yield refusal(why, "place a hold for each topic")

    def _outside(self) -> Iterator[str]:
        """Yield the offset ranges of the first few logs that do not contain their target."""
        found: dict[tuple[int, int, int], list[TopicPartition]] = {}
        for tp, at in self.places.items():
            if at.is_outside and at.offset is not None:
                found.setdefault((at.start, at.end, at.offset), []).append(tp)
        for (start, end, offset), tps in tuple(found.items())[:_MOST_LOGS]:
            verb, they = ("has", "it") if len(tps) == 1 else ("have", "they")
            log = f"{partitions_text(tps)} {verb} offsets {start:,} to {end:,}"
            yield f"{log}, so {they} cannot move to {offset:,}"
        if left := [tp for tps in tuple(found.values())[_MOST_LOGS:] for tp in tps]:
            yield f"{partitions_text(left)} are outside their logs, too"

    def _moved_by_others(self, view: View) -> Iterator[str]:
        found: dict[str, list[Movement]] = {}
        for one in movements(view, self.scopes):
            if one.by != OPERATOR + self.owner and not one.is_moved:
                found.setdefault(one.by, []).append(one)
        for by, several in found.items():
            yield from reasons(several, f"still moved by {by}")

    def _not_moving(self, plan: Plan) -> Iterator[Need]:
        found: dict[str, list[TopicPartition]] = {}
        unowned = obstacle_without_owner(plan.view)
        for tp in self.places:
            several = owners_of(plan.view, tp)
            for why in map(obstacle, several) if several else (unowned,):
                if why:
                    found.setdefault(why, []).append(tp)
        for why, tps in found.items():
            shown = partitions_text(tps)
            yield Need(
                consent=Consent.FORCE,
                why=f"{shown} would not be moved: {why}",
                ask=f"--force moves the others, and leaves {shown} where it is",
                about=tuple(names(tps)),
            )

    def rows(self) -> Iterator[str]:
        """Yield each movement, as text."""
        for tp, at in self.places.items():
            known, more = at.committed, ""
            before = "nothing committed" if known is None else f"{known:,}"
            after = "nowhere" if at.offset is None else f"{at.offset:,}"
            if known is not None and at.offset is not None:
                count = abs(known - at.offset)
                kind = "again" if at.offset < known else "passed over"
                more = f"   {count:,} {kind}" if count else "   stays"
            if at.is_outside:
                more = "   outside the log"
            yield f"{name_of(tp)}  {before} -> {after}{more}"

    def points(self, plan: Plan, /) -> Iterator[Point]:
        """Yield the movements, the holds that lose their end, and the topics left out."""
        yield from (("note", row) for row in self.rows())
        for one in plan.own:
            if one.expires_at is not None:
                end = f"your hold of {one.key.scope} ends at {utc(one.expires_at)}"
                yield (
                    "waiting",
                    f"{end}: this end is removed, and the hold stays until resumed",
                )
        yield from (("waiting", one.why) for one in plan.needs if one.why)
        there = {tp.topic for tp in self.places}
        for topic in _left(plan.view, self.scopes):
            if topic not in there:
                stays = "it stays where it is, unless it is named"
                yield "note", f"no member of the group reads {topic}: {stays}"
        for report in plan.view.reports:
            if report.kind == STREAM:
                yield "note", f"{report.client_id} is a stream: its offsets do not move"

    def facts(self) -> list[Any]:
        """Return the parts of the action that a digest covers."""
        to = sorted((*tp, at.offset) for tp, at in self.places.items())
        return [self.group, self.owner, to, sorted(self.topic_ids.items())]

    def document(self, plan: Plan, /) -> dict[str, Any]:
        """Return each movement as plain JSON values."""
        moves = [
            {
                "partition": name_of(tp),
                "from": at.committed,
                "to": at.offset,
                "start": at.start,
                "end": at.end,
            }
            for tp, at in self.places.items()
        ]
        return {"moves": moves, "to_agree": plan.to_agree}
