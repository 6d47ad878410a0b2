"""Reads where a group is to be moved, and asks brokers which offsets that means."""

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from uuid import UUID

import kafka.errors as kafka_errors
from attrs import frozen
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient

from safeconsumer._kafka.pausing.subscription import id_text
from safeconsumer.errors.base import HoldSettingError
from safeconsumer.group.survey import first_offsets

EARLIEST, LATEST, OFFSET, BACK, TIME = "earliest", "latest", "offset", "back", "time"

_ASK_TIMEOUT_MS = 10_000
# A broker's, of topics from before Kafka 2.8.
_NO_ID = UUID(int=0)


@frozen(kw_only=True)
class To:
    """
    Where partitions are to be moved, as it was typed.

    Attributes:
        kind: ``earliest``, ``latest``, ``offset``, ``back`` (so many offsets before what
            is committed) or ``time``.
        value: the offset, the number of offsets, or the time in seconds since the epoch.
        text: as it was typed.
    """

    kind: str
    value: float = 0.0
    text: str


def read_to(text: str) -> To:
    """
    Read where partitions are to be moved.

    Raises:
        HoldSettingError: it is not one of the ways to say it.
    """
    typed = text.strip()
    if typed in {EARLIEST, LATEST}:
        return To(kind=typed, text=typed)
    if re.fullmatch(r"[0-9]{1,18}", typed, re.ASCII):
        return To(kind=OFFSET, value=int(typed), text=typed)
    if re.fullmatch(r"-[0-9]{1,18}", typed, re.ASCII):
        return To(kind=BACK, value=int(typed[1:]), text=typed)
    try:
        at = datetime.fromisoformat(typed)
    except ValueError:
        message = (
            f"to: not {text[:60]!r}: write earliest, latest, an offset such as 1200, "
            "-100 for a hundred offsets before what is committed, or a time such as "
            "2026-11-27T10:00, which is UTC unless it says otherwise"
        )
        raise HoldSettingError(message) from None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return To(kind=TIME, value=at.timestamp(), text=typed)


@frozen(kw_only=True)
class Place:
    """
    Where a partition can be moved, and where it is to be.

    Attributes:
        start: the first offset of its log.
        end: the offset behind its last record.
        offset: the target; None if nothing is committed to count from.
    """

    start: int
    end: int
    offset: int | None

    @property
    def is_outside(self) -> bool:
        """Whether the target is not in the log."""
        return self.offset is not None and not self.start <= self.offset <= self.end


Places = Mapping[TopicPartition, Place]


def places_of(  # noqa: PLR0913 - two questions, and the three clients that are asked
    to: To,
    partitions: Collection[TopicPartition],
    *,
    committed: Mapping[TopicPartition, int],
    admin: KafkaAdminClient,
    asker: KafkaConsumer,
    stable: KafkaConsumer,
) -> Places:
    """
    Return where partitions are moved; of each that is there and has a leader.

    Args:
        to: where to.
        partitions: the partitions.
        committed: what the group has committed.
        admin: the client that asks which topics there are.
        asker: the client that asks for offsets.
        stable: one that asks where the records of ended transactions end: a group that
            reads no others must not pass over those of open ones.

    Raises:
        KafkaError: a broker does not answer.
    """
    several = sorted(partitions)
    if not several:
        return {}
    starts = asker.beginning_offsets(several, timeout_ms=_ASK_TIMEOUT_MS)
    ends = asker.end_offsets(several, timeout_ms=_ASK_TIMEOUT_MS)
    wanted: dict[TopicPartition, int | None]
    if to.kind == EARLIEST:
        wanted = dict(starts)
    elif to.kind == OFFSET:
        wanted = dict.fromkeys(several, int(to.value))
    elif to.kind == BACK:
        wanted = {
            tp: committed[tp] - int(to.value) for tp in several if tp in committed
        }
    else:
        wanted = dict(stable.end_offsets(several, timeout_ms=_ASK_TIMEOUT_MS))
        if to.kind == TIME:
            wanted |= first_offsets(dict.fromkeys(several, to.value), admin, asker)
    return {
        tp: Place(start=starts[tp], end=ends[tp], offset=wanted.get(tp))
        for tp in several
    }


def topic_ids(admin: KafkaAdminClient, names: Collection[str]) -> dict[str, str]:
    """Return the ids of topics, as Kafka writes them, where the broker knows them."""
    found = {}
    for one in admin.describe_topics(sorted(names)):
        known = UUID(str(one.get("topic_id") or _NO_ID))
        if not one["error_code"] and known != _NO_ID:
            found[one["name"]] = id_text(known)
    return found


def move_empty(
    admin: KafkaAdminClient, group: str, offsets: Mapping[TopicPartition, object]
) -> dict[TopicPartition, type[Exception]]:
    """
    Commit for a group without members; return the errors of what was refused.

    Kafka refuses it as soon as there is one, which moves what it owns itself.
    """
    answers = admin.alter_group_offsets(group, dict(offsets))
    return {
        tp: error for tp, error in answers.items() if error is not kafka_errors.NoError
    }
