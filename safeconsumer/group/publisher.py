"""
Writing group holds: state, one record per scope, acknowledged by all replicas.
"""

import math
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import kafka.errors as kafka_errors
from attrs import evolve, frozen
from kafka import KafkaProducer

from safeconsumer.errors import ControlWriteError, HoldSettingError
from safeconsumer.group import wire
from safeconsumer.group.wire import ControlHold, ControlKey

# Names the call that wrote a record, by which it is found where its acknowledgement was
# lost: a tombstone has no value to tell it by. Nobody else reads it.
_HEADER = "safeconsumer-write"
# For the client to give up by itself, which it does at the end of the timeout.
_MARGIN = 0.5
# Between two tries of what a broker refused for the moment.
_BACKOFF = 0.1
# For what was sent, where somebody does not want to wait any more.
_SHORTLY = 2.0

# Answers after which a record may be in the log all the same.
_UNSURE = (
    kafka_errors.KafkaStorageError,
    kafka_errors.NetworkExceptionError,
    kafka_errors.NotEnoughReplicasAfterAppendError,
    kafka_errors.RequestTimedOutError,
    kafka_errors.UnknownError,
)
_TROUBLES = (kafka_errors.KafkaError, OSError)


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


Tell = Callable[[Sequence[Acknowledged], Sequence[Change]], object]


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
    return ControlHold(_new_id(), reason, ttl_ms, host=host, principal=principal)


def _new_id() -> str:
    return uuid.uuid4().hex[:12]


def changes(
    group: str, owner: str, scopes: Iterable[str], hold: ControlHold | None
) -> tuple[Change, ...]:
    """
    Return what must be written to hold scopes of a group or, without ``hold``, to lift.

    Each is a hold by itself, and has an id of its own.
    """
    return tuple(
        Change(
            ControlKey(group, owner, scope),
            None if hold is None else evolve(hold, hold_id=_new_id()),
        )
        for scope in dict.fromkeys(scopes)
    )


def publish(  # noqa: PLR0913, PLR0917 - how to write, and how to look afterwards
    connect: Callable[[], KafkaProducer],
    topic: str,
    wanted: Sequence[Change],
    timeout: float,
    read: Callable[[], Iterable[Any]] | None = None,
    tell: Tell = lambda *_: None,
) -> tuple[Acknowledged, ...]:
    """
    Write the changes and wait until every one is acknowledged.

    They are no transaction: each is complete by itself, and writing it again is safe.
    Nothing is sent twice that may have been written: somebody else may have written
    the same key meanwhile, and it would undo that.

    Args:
        connect: makes or returns the client to write with; it must not try again.
        topic: where to.
        wanted: what to write.
        timeout: seconds until each is acknowledged, at most; that client's too.
        read: returns the topic's records; asked where an answer was lost.
        tell: is told at the end, however that is, what is acknowledged, and what surely
            was not written; of the rest nobody knows.

    Raises:
        ControlWriteError: one was not acknowledged; the message says of each whether
            it was, was not written, or nobody knows.
        KeyboardInterrupt: with the same words.
    """
    writing = _Writing(topic, wanted, time.monotonic() + timeout)
    try:
        writing.write(connect)
        writing.look(read)
    except KeyboardInterrupt as interrupt:
        writing.settle(time.monotonic() + _SHORTLY)
        message = f"interrupted: {writing.sentence()}"
        raise KeyboardInterrupt(message) from interrupt
    finally:
        tell(writing.acknowledged, writing.refused)
    if writing.error is not None:
        error = ControlWriteError(writing.sentence())
        error.acknowledged = writing.acknowledged
        raise error from writing.error
    return writing.acknowledged


class _Writing:
    """
    What became of some changes.

    Args:
        topic: where to.
        wanted: all of them.
        until: when to give up, by the monotonic clock.
    """

    def __init__(self, topic: str, wanted: Sequence[Change], until: float) -> None:
        self._topic = topic
        self._wanted = tuple(dict.fromkeys(wanted))
        self._until = until
        self._mark = uuid.uuid4().hex[:12].encode()
        self._sent: dict[Change, Any] = {}
        self._done: dict[Change, Acknowledged] = {}
        # Each with why.
        self._refused: dict[Change, BaseException] = {}
        self._unknown: dict[Change, BaseException] = {}

    @property
    def acknowledged(self) -> tuple[Acknowledged, ...]:
        """
        What every replica has, in the order in which it was asked for.
        """
        return tuple(self._done[one] for one in self._wanted if one in self._done)

    @property
    def refused(self) -> tuple[Change, ...]:
        """
        What surely was not written.
        """
        return tuple(self._refused)

    @property
    def error(self) -> BaseException | None:
        """
        Why the first of those that are not acknowledged is not; None if all are.
        """
        why = {**self._refused, **self._unknown}
        return next((why[one] for one in self._wanted if one in why), None)

    def write(self, connect: Callable[[], KafkaProducer]) -> None:
        """
        Send each until it is acknowledged, or refused for good, or nobody knows.
        """
        todo: Sequence[Change] = self._wanted
        while todo:
            for one in todo:
                self._refused.pop(one, None)
            self._send(connect, todo)
            self.settle(self._until + _MARGIN)
            todo = [one for one, why in self._refused.items() if _is_passing(why)]
            if time.monotonic() + _BACKOFF > self._until:
                return
            if todo:
                time.sleep(_BACKOFF)

    def _send(
        self, connect: Callable[[], KafkaProducer], todo: Sequence[Change]
    ) -> None:
        try:
            producer = connect()
            for one in todo:
                self._sent[one] = producer.send(
                    self._topic,
                    key=wire.encode_key(one.key),
                    value=_value(one),
                    headers=[(_HEADER, self._mark)],
                    partition=0,
                )
        except (*_TROUBLES, AssertionError) as error:
            # No partition 0 is an assert in send(). What follows would fail like it.
            self._refused.update((one, error) for one in todo if one not in self._sent)

    def settle(self, until: float) -> None:
        """
        Wait for every answer until then, and note what each says.
        """
        for one, future in tuple(self._sent.items()):
            try:
                answer = future.get(max(0.0, until - time.monotonic()))
            except _TROUBLES as error:
                where = self._refused if _is_refusal(error) else self._unknown
                where[one] = error
            else:
                self._acknowledge(one, answer)
            del self._sent[one]

    def look(self, read: Callable[[], Iterable[Any]] | None) -> None:
        """
        Find in the topic what was written, and its acknowledgement lost.
        """
        if not self._unknown or read is None:
            return
        unknown = {wire.encode_key(one.key): one for one in self._unknown}
        try:
            records = read()
        except _TROUBLES:
            return
        for record in records:
            if (_HEADER, self._mark) in record.headers and record.key in unknown:
                one = unknown[record.key]
                self._unknown.pop(one, None)
                self._acknowledge(one, record)

    def _acknowledge(self, one: Change, answer: Any) -> None:  # noqa: ANN401 - kafka-python is untyped
        at_ms = answer.timestamp
        self._done[one] = Acknowledged(one, answer.offset, at_ms, _value(one))

    def sentence(self) -> str:
        """
        Say of each whether it was written.
        """
        known = {*self._done, *self._refused, *self._unknown}
        said = [
            f"{_names(several)} could not be written to {self._topic} ({_words(why)})"
            for why, several in _by_reason(self._refused)
        ]
        if unsent := [one for one in self._wanted if one not in known]:
            said.append(f"not written: {_names(unsent)}")
        if self._unknown:
            said.append(self._unsure())
        kept = _names(one.change for one in self.acknowledged) or "nothing"
        said.append(f"acknowledged: {kept}. Running it again is safe")
        return "; ".join(said)

    def _unsure(self) -> str:
        why = next(iter(self._unknown.values()))
        is_lifting = any(one.hold is None for one in self._unknown)
        would = (
            "lift what is placed again meanwhile: look at status before you place it"
            if is_lifting
            else "hold then: look at status, and resume what is not wanted any more"
        )
        return (
            f"whether {_names(self._unknown)} was written to {self._topic} is unknown "
            f"({_words(why)}); it may still be written later, and would {would}"
        )


def _value(one: Change) -> bytes | None:
    return None if one.hold is None else wire.encode_hold(one.hold)


def _is_refusal(error: BaseException) -> bool:
    # It was answered, and so; or it never left.
    if isinstance(error, kafka_errors.NodeNotReadyError):
        return True
    is_answer = isinstance(error, kafka_errors.BrokerResponseError)
    return is_answer and not isinstance(error, _UNSURE)


def _is_passing(error: BaseException) -> bool:
    return _is_refusal(error) and isinstance(error, kafka_errors.RetriableError)


def _by_reason(
    failed: Mapping[Change, BaseException],
) -> Iterable[tuple[BaseException, list[Change]]]:
    several: dict[str, tuple[BaseException, list[Change]]] = {}
    for one, why in failed.items():
        several.setdefault(_words(why), (why, []))[1].append(one)
    return several.values()


def _words(error: BaseException) -> str:
    words, name = str(error)[:200], type(error).__name__
    return words if name in words else f"{name}: {words}"


def _names(several: Iterable[Change]) -> str:
    return ", ".join(one.key.scope for one in several)
