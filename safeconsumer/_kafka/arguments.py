"""Refuses invalid arguments for a consumer before the consumer does anything."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from kafka.errors import KafkaConfigurationError

from safeconsumer._kafka.structs import AssignedPartition, TopicPartition
from safeconsumer.errors.base import (
    ControlSettingError,
    HoldSettingError,
    HookTypeError,
    ScopeSyntaxError,
    TargetTypeError,
    TimestampError,
)
from safeconsumer.errors.kafka_python import IllegalTargetError
from safeconsumer.events.dispatch import Hook
from safeconsumer.holds import ranges
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.hold import Hold
from safeconsumer.holds.scope import Scope, partition_text

T = TypeVar("T")


def check_flags(**flags: object) -> None:
    """Refuse any value but a bool, because a string such as "false" would count as true."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            message = f"{name} must be True or False, not {value!r}"
            raise HoldSettingError(message)


def check_handover(value: object, group_id: object) -> None:
    """Refuse an unknown ``pause_handover`` value, or a handover without a group."""
    if value not in ("off", "assignor"):  # a list is not hashable
        message = f"pause_handover must be 'off' or 'assignor', not {value!r}"
        raise HoldSettingError(message)
    if value == "assignor" and not group_id:
        message = "pause_handover needs a group_id: only a group has a next owner"
        raise HoldSettingError(message)


def check_parked_max_bytes(value: object) -> None:
    """Refuse a value that is not a number of bytes."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        message = (
            f"parked_max_bytes must be a number of bytes, 0 or more, not {value!r}"
        )
        raise HoldSettingError(message)


# The last two values are kafka-python's old names for the first two.
_RESETS = frozenset({"earliest", "latest", "none", "smallest", "largest"})


def check_reset(value: object) -> None:
    """Refuse an unknown ``auto_offset_reset``; kafka-python would treat it as "none"."""
    if str(value).lower() not in _RESETS:
        message = (
            f"auto_offset_reset must be 'earliest', 'latest' or 'none', not {value!r}"
        )
        raise KafkaConfigurationError(message)


def check_assignable(one: object) -> None:
    """Refuse any value but a ``TopicPartition`` with a topic name and a whole number."""
    is_partition = isinstance(one, TopicPartition) and isinstance(one.topic, str)
    if not is_partition or not hasattr(one.partition, "__index__"):  # type: ignore[attr-defined]  # it is a TopicPartition then
        message = (
            "assign() takes a list of TopicPartitions, each of a topic's name and a "
            f"whole number, not {one!r}"
        )
        raise TargetTypeError(message)


# Kafka's timestamps are signed 64-bit integers.
_FIRST_TIME_TOO_LATE = 2**63


def check_times(timestamps: Mapping[TopicPartition, float]) -> None:
    """Refuse a timestamp, in milliseconds since 1970, that Kafka does not accept."""
    for tp, time_ms in timestamps.items():
        if not 0 <= time_ms < _FIRST_TIME_TOO_LATE:
            message = (
                f"offsets_for_times() takes milliseconds since 1970, from 0 up to "
                f"{_FIRST_TIME_TOO_LATE - 1}, not {time_ms!r} "
                f"for {partition_text(*tp)}"
            )
            raise TimestampError(message)


def checked_hooks(hooks: object) -> tuple[Hook, ...]:
    """Return the hooks; refuse a single function, or a value that is not iterable."""
    if callable(hooks) or not isinstance(hooks, Iterable):
        message = f"hooks takes a list of functions, hooks=[function], not {hooks!r}"
        raise HookTypeError(message)
    return tuple(hooks)


def check_control(control: object) -> None:
    """Refuse a value of ``control`` that is not a ``Control``."""
    if control is not None and (
        isinstance(control, type) or not hasattr(control, "attach")
    ):
        message = f"control takes a Control(), not {control!r}"
        raise ControlSettingError(message)


def scope_of(target: object) -> Scope:
    """
    Return the scope of a target.

    Raises:
        TargetTypeError: the target has another type.
        ScopeSyntaxError: the target's text or pattern is not valid;
            ``IllegalTargetError``, a subclass, if Kafka does not allow such a name or
            number.
    """
    if isinstance(target, AssignedPartition) and target.scope is not None:
        return target.scope  # the scope was checked on assignment
    try:
        if isinstance(target, TopicPartition):
            return scopes.partition(*target)
        _refuse_other_types(target)
        return scopes.of(target)
    except ScopeSyntaxError as error:
        is_pattern = hasattr(target, "pattern") or (
            isinstance(target, str) and scopes.expression_of(target) is not None
        )
        if is_pattern or isinstance(error, IllegalTargetError):
            raise
        raise IllegalTargetError(*error.args) from error


def scopes_of(targets: Iterable[T]) -> dict[Scope, T | str]:
    """
    Map the scopes of targets to the targets; ``orders:0-2`` stands for three scopes.

    Raises:
        TargetTypeError, ScopeSyntaxError, IllegalTargetError: as :func:`scope_of`.
    """
    try:
        each = list(ranges.spread_targets(targets))
    except ScopeSyntaxError as error:
        raise IllegalTargetError(*error.args) from error
    return {scope_of(one): one for one in each}


def partition_of(target: object) -> scopes.Partition:
    """
    Return the scope of a target that is one partition.

    Raises:
        TargetTypeError: the target is not a partition.
        ScopeSyntaxError, IllegalTargetError: as :func:`scope_of`.
    """
    scope = scope_of(target)
    if not isinstance(scope, scopes.Partition):
        message = f"explain() takes a partition, like 'orders:3', not {target!r}"
        raise TargetTypeError(message)
    return scope


def _refuse_other_types(target: object) -> None:
    if isinstance(target, Hold):
        message = f"a target is a scope: pass hold.scope ({target.scope}), not the hold"
        raise TargetTypeError(message)
    if isinstance(target, list | set | frozenset):
        message = f"targets are given one by one: pause(*targets), not {target!r:.200}"
        raise TargetTypeError(message)
    if type(target) is tuple:  # kafka-python does not accept a plain tuple either
        message = (
            f"a partition is a TopicPartition or text like 'orders:3', not {target!r}"
        )
        raise TargetTypeError(message)
