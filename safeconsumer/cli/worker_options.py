"""Defines the options of ``safeconsumer run`` that become settings of a worker."""

import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click
from attrs import NOTHING, Attribute, fields

from safeconsumer.cli.errors import Status, give_up
from safeconsumer.cli.rates import rate_of
from safeconsumer.group.durations import seconds_of
from safeconsumer.worker import Breaker, Commit, Drain, Retry

_Setting = TypeVar("_Setting", Breaker, Commit, Drain, Retry)
# Fields whose values are classes, and fields whose values are seconds.
_CLASSES = frozenset({"never", "on"})
_SECONDS = frozenset(
    {"every", "first", "most", "revoke", "shutdown", "timeout", "within"}
)


def option(
    *names: str,
    read: Callable[[Any], Any],
    **more: Any,  # noqa: ANN401 - click's own
) -> Callable[..., Any]:
    """
    Return an option whose value a function reads; its refusal is printed as one line.

    Args:
        names: the option's names, as click takes them.
        read: called with a text, or a tuple of texts; raises ``ValueError`` or
            ``click.BadParameter``. Not called if the option is not given.
        more: further arguments of ``click.option``.
    """

    def callback(
        context: click.Context,
        _parameter: click.Parameter,
        given: Any,  # noqa: ANN401 - a text, or a tuple of them
    ) -> Any:  # noqa: ANN401 - the option's own
        try:
            return None if given is None or given == () else read(given)
        except click.BadParameter as error:
            give_up(context, f"{names[0]}: {error.message}", Status.USAGE)
        except ValueError as error:
            give_up(context, f"{names[0]}: {error}", Status.USAGE)

    return click.option(*names, callback=callback, **more)


def setting_option(
    name: str, kind: type[_Setting], usual: str | None, help_: str
) -> Callable[..., Any]:
    """
    Return an option for a frozen setting: ``NAME=VALUE,...``, by the setting's names.

    Its value is a dict of the fields; None if it is not given.

    Args:
        name: the option's name.
        kind: the setting's class.
        usual: the field for a text without ``=``; None if there is none.
        help_: the option's help.
    """
    names = "|".join(one.name for one in fields(kind))
    return option(
        name,
        read=lambda text: _fields(kind, text, usual),
        metavar=f"{names}=VALUE,...",
        help=help_,
    )


def throttle_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that limit how many records begin, and how long handlers take."""
    for one in reversed(_THROTTLES):
        command = one(command)
    return command


def _per_topic(given: tuple[str, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in given:
        topic, _, number = text.rpartition("=")
        if not topic or not number.isdecimal():
            message = f"{text!r} is not TOPIC=N"
            raise ValueError(message)
        if topic in found:
            message = f"{topic} is given twice"
            raise ValueError(message)
        found[topic] = int(number)
    return found


_THROTTLES = (
    option(
        "--batch-within",
        read=seconds_of,
        metavar="DURATION",
        help="How long a batch waits for more records, such as 0.5s.",
    ),
    option("--rate", read=rate_of, metavar="N/s", help="The most records to begin."),
    option(
        "--topic-concurrency",
        read=_per_topic,
        multiple=True,
        metavar="TOPIC=N",
        help="The most handlers on a topic, or on each of re:PATTERN; repeatable.",
    ),
    option(
        "--handler-timeout",
        read=seconds_of,
        metavar="DURATION",
        help="How long a call may take: a coroutine is cancelled, a process killed, "
        "a thread reported.",
    ),
)


def imported(name: str, what: str) -> Any:  # noqa: ANN401 - whatever stands there
    """
    Return the object at ``package.module:name``.

    Raises:
        click.BadParameter: it cannot be imported; the message says why.
    """
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        message = f"{name!r} is not {what}"
        raise click.BadParameter(message)
    if module.endswith(".py") or "/" in module:
        dotted = module.removeprefix("./").removesuffix(".py").replace("/", ".")
        message = f"{name!r} names a file: write it as {dotted}:{attribute}"
        raise click.BadParameter(message)
    if os.getcwd() not in sys.path:  # noqa: PTH109 - as python -m does
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as python -m does
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:  # importing it may raise anything
        message = f"{name} cannot be imported: {type(error).__name__}: {error}"
        raise click.BadParameter(message) from error
    return found


def function(name: str) -> Callable[..., Any]:
    """
    Return the function at ``package.module:name``.

    Raises:
        click.BadParameter: it cannot be imported, or called.
    """
    found = imported(name, "MODULE:FUNCTION")
    if not callable(found):
        message = f"{name} cannot be called"
        raise click.BadParameter(message)
    return found  # type: ignore[no-any-return]  # it is callable


def _fields(kind: type[_Setting], text: str, usual: str | None) -> dict[str, Any]:
    known = {one.name: one for one in fields(kind)}
    found: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if not equals and usual is not None:
            name, value = usual, part
        elif not equals or name not in known:
            message = f"{part!r} is not NAME=VALUE, NAME one of {', '.join(known)}"
            raise click.BadParameter(message)
        if name in found:
            message = f"{name} is given twice"
            raise click.BadParameter(message)
        found[name] = _value(known[name], value.strip())
    for one in known.values():
        if one.default is NOTHING and one.name not in found:
            message = f"{one.name}=VALUE is missing"
            raise click.BadParameter(message)
    return found


def _value(field: "Attribute[Any]", text: str) -> Any:  # noqa: ANN401 - the field's own
    if field.name in _CLASSES:
        return tuple(imported(one, "MODULE:CLASS") for one in text.split("+"))
    if field.name in _SECONDS and text[-1:].isalpha():
        return seconds_of(text)
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if (field.type is bool) is not isinstance(value, bool) or isinstance(value, str):
        wanted = "true or false" if field.type is bool else "a number"
        message = f"{field.name} must be {wanted}, not {text!r}"
        raise click.BadParameter(message)
    return value
