"""Makes decorators that give a command several options as one value."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

Command = Callable[..., Any]
"""The function of a command."""


def options(
    name: str, make: Callable[..., object], *several: Callable[[Command], Command]
) -> Callable[[Command], Command]:
    """
    Return a decorator that gives a command options, and calls it with what they make.

    Args:
        name: the parameter of the command that gets the value.
        make: makes it; its parameters are the names of the options.
        several: the options, in the order of the help.
    """
    names = inspect.signature(make).parameters

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def called(*args: object, **given: object) -> object:
            made = make(**{one: given.pop(one) for one in names})
            return command(*args, **{name: made}, **given)

        found: Command = called
        for option in reversed(several):
            found = option(found)
        return found

    return decorate
