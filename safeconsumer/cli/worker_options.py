"""
Options of ``safeconsumer run`` that become settings of a worker.
"""

import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click
from attrs import Attribute, fields

from safeconsumer.worker import Commit, Drain, Retry

_Setting = TypeVar("_Setting", Commit, Drain, Retry)


def setting_option(
    name: str, kind: type[_Setting], usual: str | None, help_: str
) -> Callable[..., Any]:
    """
    Return an option for a frozen setting: ``NAME=VALUE,...``, by the setting's names.

    Args:
        name: of the option.
        kind: of the setting.
        usual: which value is meant by a text without ``=``; None if none is.
        help_: what it is for.
    """
    names = "|".join(one.name for one in fields(kind))
    return click.option(
        name,
        default="",
        callback=lambda _context, _parameter, text: _fields(kind, text, usual),
        metavar=f"{names}=VALUE,...",
        help=help_,
    )


def imported(name: str, what: str) -> Any:  # noqa: ANN401 - whatever stands there
    """
    Return what stands at ``package.module:name``.

    Raises:
        click.BadParameter: it cannot be had; the message says why.
    """
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        message = f"{name!r} is not {what}"
        raise click.BadParameter(message)
    if os.getcwd() not in sys.path:  # noqa: PTH109 - as python -m does
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - likewise
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # whatever the module does
        message = f"{name} cannot be imported: {type(error).__name__}: {error}"
        raise click.BadParameter(message) from error
    return found


def hooks_of(names: tuple[str, ...]) -> list[Callable[[Any], object]]:
    """
    Return the hooks by these names.

    Raises:
        click.BadParameter: one cannot be imported, or called.
    """
    found = [imported(name, "MODULE:FUNCTION") for name in names]
    for name, hook in zip(names, found, strict=True):
        if not callable(hook):
            message = f"--hook {name}: it cannot be called with an event"
            raise click.BadParameter(message)
    return found


def _fields(kind: type[_Setting], text: str, usual: str | None) -> dict[str, Any]:
    known = {one.name: one for one in fields(kind)}
    found: dict[str, Any] = {}
    for part in text.split(",") if text else ():
        name, equals, value = part.strip().partition("=")
        if not equals and usual is not None:
            name, value = usual, part
        elif not equals or name not in known:
            message = f"{part!r} is not NAME=VALUE, NAME one of {', '.join(known)}"
            raise click.BadParameter(message)
        if name in found:
            message = f"{name} is there twice"
            raise click.BadParameter(message)
        found[name] = _value(known[name], value.strip())
    return found


def _value(field: "Attribute[Any]", text: str) -> Any:  # noqa: ANN401 - the field's own
    if field.name == "never":
        return tuple(imported(one, "MODULE:CLASS") for one in text.split("+"))
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if (field.type is bool) is not isinstance(value, bool) or isinstance(value, str):
        wanted = "true or false" if field.type is bool else "a number"
        message = f"{field.name} must be {wanted}, not {text!r}"
        raise click.BadParameter(message)
    return value
