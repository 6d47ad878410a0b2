"""
What a pause would do, before it is placed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import kafka.errors as kafka_errors
from attrs import frozen
from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from safeconsumer.cli import scoping
from safeconsumer.group import judging
from safeconsumer.group.documents import standing_document
from safeconsumer.group.durations import words_of
from safeconsumer.group.facts import Standing
from safeconsumer.group.operator import Operator
from safeconsumer.group.picture import Picture
from safeconsumer.holds.explain import utc
from safeconsumer.holds.scope import Scope


@frozen(kw_only=True)
class Preview:
    """
    What placing holds would do.

    Attributes:
        covers: the partitions of the group that they cover now.
        waiting: records that wait there already, behind what is committed; None if
            that could not be read of every partition.
        disobeying: members that would not be known to obey, each with why.
        others: holds of others that cover some of it.
        retention: seconds for which each topic keeps records; None without a limit.
        unread: topics of which that could not be read.
        seconds: how long the holds last; None until they are resumed.
        now: the broker's time, seconds since the epoch; None if it is unknown.
    """

    covers: tuple[TopicPartition, ...]
    waiting: int | None
    disobeying: tuple[str, ...]
    others: tuple[Standing, ...]
    retention: Mapping[str, float | None]
    unread: tuple[str, ...]
    seconds: float | None
    now: float | None

    @property
    def shortest(self) -> tuple[str, float] | None:
        """
        The topic that loses records first, and after how many seconds.
        """
        limited = {one: s for one, s in self.retention.items() if s is not None}
        return min(limited.items(), key=lambda one: one[1]) if limited else None

    @property
    def is_loss_possible(self) -> bool:
        """
        Whether a topic would delete records that are held, for all that is known.
        """
        if self.shortest is None:
            return False
        return self.seconds is None or self.seconds >= self.shortest[1]

    def lines(self) -> list[str]:
        """
        Say it to people.
        """
        shown = judging.partitions_text(self.covers) or "nothing yet"
        lines = [f"would cover {len(self.covers)} partitions: {shown}"]
        if self.waiting is None:
            lines.append("how many records wait there already is unknown")
        else:
            lines.append(f"{self.waiting:,} records wait there already")
        lines += [f"would not obey: {one}" for one in self.disobeying]
        lines += [
            f"held already by {one.source}:{one.key.owner}: {one.key.scope}"
            for one in self.others
        ]
        lines.append(self._end())
        if self.shortest is not None:
            topic, seconds = self.shortest
            ends = "BEFORE the hold does" if self.is_loss_possible else "later"
            lines.append(
                f"retention ends {ends}: {topic} deletes records after "
                f"{words_of(seconds)}"
            )
        if self.unread:
            names = ", ".join(self.unread)
            lines.append(f"how long records are kept is unknown for {names}")
        return lines

    def _end(self) -> str:
        if self.seconds is None:
            return "would last until somebody resumes it"
        at = "" if self.now is None else f", until {utc(self.now + self.seconds)}"
        return f"would last {words_of(self.seconds)}{at}"

    def document(self) -> dict[str, Any]:
        """
        Return it as plain JSON values.
        """
        first = self.shortest
        return {
            "covers": [f"{tp.topic}:{tp.partition}" for tp in self.covers],
            "waiting": self.waiting,
            "disobeying": list(self.disobeying),
            "others": [standing_document(one) for one in self.others],
            "seconds": self.seconds,
            "retention": dict(self.retention),
            "retention_unknown": list(self.unread),
            "retention_ends_first": self.is_loss_possible,
            "first_topic": None if first is None else first[0],
        }


def preview(
    operator: Operator,
    picture: Picture,
    scopes: Sequence[Scope],
    others: Sequence[Standing],
    seconds: float | None,
) -> Preview:
    """
    Ask what is needed, and say what placing such holds would do.
    """
    covers = scoping.covered(scopes, scoping.partitions_of(picture))
    lags = operator.lags(picture.facts, covers)
    retention, unread = _retention(operator, sorted({tp.topic for tp in covers}))
    return Preview(
        covers=covers,
        waiting=sum(lags.values()) if len(lags) == len(covers) else None,
        disobeying=tuple(_disobeying(picture, covers)),
        others=tuple(others),
        retention=retention,
        unread=unread,
        seconds=seconds,
        now=picture.now,
    )


def _disobeying(picture: Picture, covers: Sequence[TopicPartition]) -> list[str]:
    judge = judging.Judge(picture)
    told = [
        f"{one.name}: {one.why}"
        for one in (*judge.members, *judge.others)
        if covers and not one.obeys
    ]
    return [*told, *(f"nobody knows: {why}" for why in picture.unread)]


def _retention(
    operator: Operator, topics: Sequence[str]
) -> tuple[dict[str, float | None], tuple[str, ...]]:
    if not topics:
        return {}, ()
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in topics]
    try:
        answer = operator.admin.describe_configs(resources, config_filter="all")
    except kafka_errors.AuthorizationError:
        return {}, tuple(topics)
    found: dict[str, float | None] = {}
    for name, settings in answer.get("topic", {}).items():
        value = (settings or {}).get("retention.ms", {}).get("value")
        if value is not None:
            policy = settings.get("cleanup.policy", {}).get("value", "delete")
            is_kept = int(value) < 0 or "delete" not in policy
            found[name] = None if is_kept else int(value) / 1000
    return found, tuple(name for name in topics if name not in found)
