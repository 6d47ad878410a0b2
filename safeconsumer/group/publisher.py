"""Writes holds on groups, one record per scope, acknowledged by all replicas."""

import math
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import kafka.errors as kafka_errors
from attrs import evolve, frozen
from kafka import KafkaProducer

from safeconsumer._interrupts import is_from_handler
from safeconsumer.errors.base import ControlWriteError, HoldSettingError
from safeconsumer.group import patterns, wire
from safeconsumer.group.facts import HoldRecord
from safeconsumer.group.partitions import scopes_text
from safeconsumer.group.wire import ControlHold, ControlKey

# Extra seconds to wait, so that the producer's own timeout ends first.
_MARGIN = 0.5
# Seconds between two attempts to write a record that the broker refused temporarily.
_BACKOFF = 0.1

# Errors that leave it unknown whether the record was written.
_UNSURE = (
    kafka_errors.KafkaStorageError,
    kafka_errors.NetworkExceptionError,
    kafka_errors.NotEnoughReplicasAfterAppendError,
    kafka_errors.RequestTimedOutError,
    kafka_errors.UnknownError,
)
_TROUBLES = (kafka_errors.KafkaError, OSError)
_NOT_SENT = KeyboardInterrupt("interrupted before it was sent")
_NO_ANSWER = KeyboardInterrupt("interrupted")


@frozen
class Change:
    """A record that places a hold or, without ``hold``, lifts it."""

    key: ControlKey
    hold: ControlHold | None

    def held_since(self, at: float | None) -> "Change":
        """
        Return the change, marked as held since an earlier time.

        Args:
            at: when the owner's existing hold was placed, in seconds since the epoch;
                None if the time is unknown or there is no such hold.
        """
        if self.hold is None or at is None:
            return self
        return evolve(self, hold=evolve(self.hold, since_ms=int(at * 1000)))

    def written(self, offset: int, at_ms: int | None) -> HoldRecord:
        """Return the record that the broker has acknowledged, with its time if known."""
        at = None if at_ms is None or at_ms < 0 else at_ms / 1000
        return HoldRecord(key=self.key, hold=self.hold, at=at, offset=offset)


def new_hold(reason: str | None, for_: float | None) -> ControlHold:
    """
    Return the content of a new hold.

    Args:
        reason: text for people.
        for_: seconds until it expires; None for no limit.

    Raises:
        HoldSettingError: the hold would last longer than ten years.
    """
    ttl_ms = None if for_ is None else max(1, math.ceil(for_ * 1000))
    if ttl_ms is not None and ttl_ms > wire.MAX_TTL_MS:
        message = f"a hold lasts ten years at most, not {for_:.0f} s: or give no end"
        raise HoldSettingError(message)
    return ControlHold(_new_id(), reason, ttl_ms)


def _new_id() -> str:
    return uuid.uuid4().hex[:12]


def changes(
    group: str, owner: str, scopes: Iterable[str], hold: ControlHold | None
) -> tuple[Change, ...]:
    """
    Return the changes that place a hold on each scope or, without ``hold``, lift it.

    Each scope becomes a separate hold, with its own id.
    """
    return tuple(
        Change(
            ControlKey(group, owner, scope),
            None if hold is None else evolve(hold, hold_id=_new_id()),
        )
        for scope in dict.fromkeys(scopes)
    )


def publish(
    connect: Callable[[], KafkaProducer],
    topic: str,
    wanted: Sequence[Change],
    timeout: float,
) -> tuple[HoldRecord, ...]:
    """
    Write the changes and wait until every one is acknowledged.

    The changes are not a transaction: each change is complete by itself, and writing it
    again is safe. A record that may have been written is never sent again
    automatically, because another process may have written the same key since, and the
    retry would undo that write. Whether the record was written is unknown until
    the caller writes it again.

    Args:
        connect: creates or returns the producer, which must not retry on its own.
        topic: the control topic.
        wanted: the changes to write.
        timeout: the seconds within which each change must be acknowledged; the producer
            must have the same timeout.

    Raises:
        ControlWriteError: a change was not acknowledged; the message names the changes
            that were acknowledged, those that were not written, and those whose result
            is unknown.
        KeyboardInterrupt: the call was interrupted; the message gives the same
            information.
        BaseException: a signal handler raised the exception; the results are unknown.
    """
    writing = _Writing(topic, wanted)
    try:
        writing.write(connect, time.monotonic() + timeout)
    except KeyboardInterrupt as interrupt:
        message = f"interrupted: {writing.sentence()}"
        raise KeyboardInterrupt(message) from interrupt
    if writing.error is not None:
        error = ControlWriteError(writing.sentence())
        error.acknowledged = writing.acknowledged
        error.refused = tuple(writing.refused)
        raise error from writing.error
    return writing.acknowledged


class _Writing:
    """Writes changes, and stores the result of each."""

    def __init__(self, topic: str, wanted: Sequence[Change]) -> None:
        self._topic = topic
        self._wanted = tuple(dict.fromkeys(wanted))
        self._done: dict[Change, HoldRecord] = {}
        # Changes that were certainly not written, each with the reason.
        self.refused: dict[Change, BaseException] = dict.fromkeys(
            self._wanted, _NOT_SENT
        )
        self._unknown: dict[Change, BaseException] = {}

    @property
    def acknowledged(self) -> tuple[HoldRecord, ...]:
        """The records that all replicas have acknowledged, in the order of the request."""
        return tuple(self._done[one] for one in self._wanted if one in self._done)

    @property
    def error(self) -> BaseException | None:
        """The error for the first change that is not acknowledged; None if all are."""
        why = {**self.refused, **self._unknown}
        return next((why[one] for one in self._wanted if one in why), None)

    def write(self, connect: Callable[[], KafkaProducer], until: float) -> None:
        """Send each change until it is acknowledged or refused, or its result is unknown."""
        todo: Sequence[Change] = self._wanted
        while todo:
            for one, future in self._sent(connect, todo).items():
                self._settle(one, future, until + _MARGIN)
            todo = [
                one
                for one, why in self.refused.items()
                if _is_refusal(why) and isinstance(why, kafka_errors.RetriableError)
            ]
            if time.monotonic() + _BACKOFF > until:
                return
            if todo:
                time.sleep(_BACKOFF)

    def _sent(
        self, connect: Callable[[], KafkaProducer], todo: Sequence[Change]
    ) -> dict[Change, Any]:
        futures: dict[Change, Any] = {}
        try:
            producer = connect()
            for one in todo:
                # Until an answer arrives, the record may or may not have been written.
                self.refused.pop(one, None)
                self._unknown[one] = _NO_ANSWER
                futures[one] = producer.send(
                    self._topic,
                    key=wire.encode_key(one.key),
                    value=None if one.hold is None else wire.encode_hold(one.hold),
                    partition=0,
                )
        except (*_TROUBLES, AssertionError) as error:
            if is_from_handler(error):
                raise
            # If the topic has no partition 0, send() fails with an AssertionError. The
            # other changes would fail in the same way.
            for one in todo:
                if one not in futures:
                    self._unknown.pop(one, None)
                    self.refused[one] = error
        return futures

    def _settle(self, one: Change, future: Any, until: float) -> None:  # noqa: ANN401 - kafka-python is untyped
        try:
            answer = future.get(max(0.0, until - time.monotonic()))
        except _TROUBLES as error:
            if is_from_handler(error):
                raise
            if not _is_refusal(error):
                self._unknown[one] = error
                return
            self.refused[one] = error
        else:
            self._done[one] = one.written(answer.offset, answer.timestamp)
        del self._unknown[one]

    def sentence(self) -> str:
        """Return a sentence saying for each change whether it was written."""
        reasons: dict[str, list[Change]] = {}
        for one, why in self.refused.items():
            reasons.setdefault(_words(why), []).append(one)
        results = [
            f"{_names(several)} could not be written to {self._topic} ({reason})"
            for reason, several in reasons.items()
        ]
        if self._unknown:
            reason = _words(next(iter(self._unknown.values())))
            results.append(
                f"whether {_names(self._unknown)} was written to {self._topic} is "
                f"unknown ({reason}): it may still be written later, so check status"
            )
        kept = _names(self.acknowledged) or "nothing"
        results.append(f"acknowledged: {kept}. Running it again is safe")
        return "; ".join(results)


def _is_refusal(error: BaseException) -> bool:
    # The broker refused the record, or the record was never sent.
    if isinstance(error, kafka_errors.NodeNotReadyError):
        return True
    is_answer = isinstance(error, kafka_errors.BrokerResponseError)
    return is_answer and not isinstance(error, _UNSURE)


def _words(error: BaseException) -> str:
    words, name = str(error)[:200], type(error).__name__
    is_whole = name in words or error in {_NOT_SENT, _NO_ANSWER}
    return words if is_whole else f"{name}: {words}"


def _names(several: Iterable[Change | HoldRecord]) -> str:
    return scopes_text([patterns.read_key(one.key).scope for one in several])
