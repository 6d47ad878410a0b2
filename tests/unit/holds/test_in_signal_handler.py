import functools
import threading
from collections.abc import Callable
from types import FrameType

import pytest

from safeconsumer.holds.signals import in_signal_handler
from tests.unit.holds.signals import handled_by, send

ANSWERS: list[bool] = []


def function(_: int, __: FrameType | None) -> None:
    ANSWERS.append(in_signal_handler())


def _deeper(depth: int) -> bool:
    return in_signal_handler() if depth == 0 else _deeper(depth - 1)


def with_calls_between(_: int, __: FrameType | None) -> None:
    ANSWERS.append(_deeper(20))


def with_arguments(answers: list[bool], _: int, __: FrameType | None) -> None:
    answers.append(in_signal_handler())


class Methods:
    def bound(self, number: int, frame: FrameType | None) -> None:
        function(number, frame)

    @classmethod
    def of_class(cls, number: int, frame: FrameType | None) -> None:
        function(number, frame)

    @staticmethod
    def static(number: int, frame: FrameType | None) -> None:
        function(number, frame)


class CallableHandler:
    def __call__(self, _: int, __: FrameType | None) -> None:
        ANSWERS.append(in_signal_handler())


@functools.wraps(function)
def wrapped(number: int, frame: FrameType | None) -> None:
    with_arguments(ANSWERS, number, frame)


HANDLERS = {
    "function": function,
    "deep": with_calls_between,
    "lambda": lambda number, frame: with_arguments(ANSWERS, number, frame),
    "bound method": Methods().bound,
    "class method": Methods.of_class,
    "static method": Methods.static,
    "callable": CallableHandler(),
    "partial": functools.partial(with_arguments, ANSWERS),
    "partial of a partial": functools.partial(
        functools.partial(with_arguments, ANSWERS)
    ),
    "partial of a method": functools.partial(Methods().bound),
    "partial of a callable": functools.partial(CallableHandler()),
    "wrapped": wrapped,
}


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=HANDLERS)
def test_a_handler_is_recognised(handler: Callable[..., None]) -> None:
    """Whatever shape it has, inside it the answer is yes, and afterwards no."""
    ANSWERS.clear()
    with handled_by(handler):
        assert not in_signal_handler()
        send()
        assert not in_signal_handler()
    assert ANSWERS == [True]


def test_other_threads_are_never_in_a_handler() -> None:
    """Python runs handlers on the main thread, also while another one asks."""
    answers: list[bool] = []

    def handler(_: int, __: FrameType | None) -> None:
        other = threading.Thread(target=lambda: answers.append(in_signal_handler()))
        other.start()
        other.join(10)

    with handled_by(handler):
        send()
    assert answers == [False]


class Endless:
    """A handler with a ``func`` that leads nowhere, as a ``Mock`` has."""

    @property
    def func(self) -> "Endless":
        return self

    def __call__(self, _: int, __: FrameType | None) -> None:
        ANSWERS.append(in_signal_handler())


@pytest.mark.timeout(120)
def test_a_handler_that_only_looks_like_a_partial() -> None:
    """Asking ends, and is right."""
    ANSWERS.clear()
    with handled_by(Endless()):
        send()
    assert ANSWERS == [True]
