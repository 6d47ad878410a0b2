"""Validates settings; each error message names the allowed values."""

import sys

from attrs import Attribute

from safeconsumer.errors.base import WorkerSettingError


def is_number(value: object) -> bool:
    """Return whether a value is a finite number that fits in a float, and is not a bool."""
    is_numeric = isinstance(value, int | float) and not isinstance(value, bool)
    # math.isfinite() raises for integers that do not fit in a float. NaN fails this
    # comparison.
    return is_numeric and abs(value) <= sys.float_info.max  # type: ignore[arg-type]  # a number


def positive(_self: object, attribute: "Attribute[float]", value: object) -> None:
    """Accept only a number above 0."""
    if not is_number(value) or value <= 0:  # type: ignore[operator]  # it is a number
        message = f"{attribute.name} must be a finite number above 0, not {value!r}"
        raise WorkerSettingError(message)


def not_negative(_self: object, attribute: "Attribute[float]", value: object) -> None:
    """Accept only a number that is 0 or more."""
    if not is_number(value) or value < 0:  # type: ignore[operator]  # it is a number
        message = f"{attribute.name} must be a finite number, 0 or more, not {value!r}"
        raise WorkerSettingError(message)


def positive_int(_self: object, attribute: "Attribute[int]", value: object) -> None:
    """Accept only a whole number that is 1 or more."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        message = f"{attribute.name} must be a whole number, 1 or more, not {value!r}"
        raise WorkerSettingError(message)


def exception_types(
    _self: object,
    attribute: "Attribute[tuple[type[Exception], ...]]",
    value: object,
) -> None:
    """Accept only a tuple of exception classes."""
    if not isinstance(value, tuple) or not all(
        isinstance(one, type) and issubclass(one, Exception) for one in value
    ):
        message = (
            f"{attribute.name} must be a tuple of exception classes, not {value!r}"
        )
        raise WorkerSettingError(message)


def share_of_one(_self: object, attribute: "Attribute[float]", value: object) -> None:
    """Accept only a number from 0 to 1."""
    if not is_number(value) or not 0 <= value <= 1:  # type: ignore[operator]  # a number
        message = f"{attribute.name} must be a number from 0 to 1, not {value!r}"
        raise WorkerSettingError(message)
