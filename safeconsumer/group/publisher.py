"""
Writing group holds: state, one record per scope, acknowledged by all replicas.
"""

import math
import uuid
from collections.abc import Callable, Iterable, Sequence

import kafka.errors as kafka_errors
from attrs import frozen
from kafka import KafkaProducer

from safeconsumer.errors import ControlWriteError, HoldSettingError
from safeconsumer.group import wire
from safeconsumer.group.wire import ControlHold, ControlKey


@frozen
class Change:
    """
    One hold placed or, without ``hold``, lifted.
    """

    key: ControlKey
    hold: ControlHold | None


@frozen
class Acknowledged:
    """
    A change that every replica has.

    Attributes:
        change: which.
        offset: its place in the control topic.
        at_ms: its time; the broker's where the topic is set up so, else None.
        value: the bytes of the record; None for a tombstone.
    """

    change: Change
    offset: int
    at_ms: int | None
    value: bytes | None


def new_hold(
    reason: str | None,
    for_: float | None,
    host: str | None = None,
    principal: str | None = None,
) -> ControlHold:
    """
    Return what a new hold says.

    Args:
        reason: for people.
        for_: seconds until it expires, or None.
        host: where it is placed, or None.
        principal: how its writer is logged in, or None.

    Raises:
        HoldSettingError: it would last for more than ten years.
    """
    ttl_ms = None if for_ is None else max(1, math.ceil(for_ * 1000))
    if ttl_ms is not None and ttl_ms > wire.MAX_TTL_MS:
        message = f"a hold lasts ten years at most, not {for_:.0f} s; or leave it open"
        raise HoldSettingError(message)
    hold_id = uuid.uuid4().hex[:12]
    return ControlHold(hold_id, reason, ttl_ms, host=host, principal=principal)


def changes(
    group: str, owner: str, scopes: Iterable[str], hold: ControlHold | None
) -> tuple[Change, ...]:
    """
    Return what must be written to hold scopes of a group or, without ``hold``, to lift.
    """
    unique = dict.fromkeys(scopes)
    return tuple(Change(ControlKey(group, owner, scope), hold) for scope in unique)


def publish(
    connect: Callable[[], KafkaProducer],
    topic: str,
    wanted: Sequence[Change],
    timeout: float,
) -> tuple[Acknowledged, ...]:
    """
    Write the changes and wait until every one is acknowledged.

    They are no transaction: each is complete by itself, and writing it again is safe.

    Args:
        connect: makes or returns the client to write with.
        topic: where to.
        wanted: what to write.
        timeout: seconds to wait for each acknowledgement.

    Raises:
        ControlWriteError: one failed; its message says which were acknowledged.
    """
    done: list[Acknowledged] = []
    try:
        producer = connect()
        sent = []
        for change in wanted:
            value = None if change.hold is None else wire.encode_hold(change.hold)
            key = wire.encode_key(change.key)
            future = producer.send(topic, key=key, value=value, partition=0)
            sent.append((change, value, future))
        for change, value, future in sent:
            written = future.get(timeout)
            done.append(Acknowledged(change, written.offset, written.timestamp, value))
    except (
        kafka_errors.KafkaError,
        AssertionError,
    ) as error:  # no partition 0: assert in send()
        raise ControlWriteError(_explained(topic, wanted, done, error)) from error
    return tuple(done)


def _explained(
    topic: str,
    wanted: Sequence[Change],
    done: Sequence[Acknowledged],
    error: BaseException,
) -> str:
    kept = ", ".join(one.change.key.scope for one in done) or "nothing"
    there = {one.change.key for one in done}
    left = ", ".join(one.key.scope for one in wanted if one.key not in there)
    late = ""
    if isinstance(error, kafka_errors.RetriableError) and any(
        one.hold is None for one in wanted if one.key not in there
    ):
        late = (
            ". It may still be written later, and would lift what is placed again "
            "meanwhile: look at status before you place it again"
        )
    return (
        f"{left} could not be written to {topic} ({type(error).__name__}: "
        f"{str(error)[:200]}); acknowledged: {kept}. Running it again is safe{late}"
    )
