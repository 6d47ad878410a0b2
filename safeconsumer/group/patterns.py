"""Parses scopes for control records. Patterns are RE2, so matching takes linear time."""

from functools import lru_cache
from importlib import import_module
from typing import Any

from attrs import frozen

from safeconsumer.errors.base import MissingExtraError, ScopeSyntaxError
from safeconsumer.group.wire import ControlKey
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.scope import CompiledPattern, Everything, Pattern, Scope

_NEEDS_RE2 = (
    "patterns that a whole group obeys need google-re2: "
    "pip install 'safeconsumer[group]'"
)


@frozen
class _Anything:
    """Stands in for an expression that cannot be compiled, and matches every name."""

    pattern: str

    def fullmatch(self, string: str, /) -> object | None:  # noqa: ARG002 - as in re
        return True


@frozen
class Read:
    """
    A scope that was read from a control record.

    Attributes:
        scope: the scope.
        trouble: why the scope covers more than its text says, or None.
    """

    scope: Scope
    trouble: str | None = None


@lru_cache(maxsize=65_536)
def read(text: str) -> Read | None:
    """
    Parse a scope that another process wrote; return None if the text is not a scope.

    A pattern that this process cannot compile covers every topic.
    """
    expression = scopes.expression_of(text)
    if expression is not None:
        if not 0 < len(expression) <= scopes.MAX_PATTERN_LENGTH:
            return None
        try:
            return Read(Pattern(expression, _compiled(expression)))
        except (MissingExtraError, ScopeSyntaxError) as error:
            return Read(Pattern(expression, _Anything(expression)), str(error))
    try:
        return Read(scopes.parse(text))
    except ScopeSyntaxError:
        return None


def read_key(key: ControlKey) -> Read:
    """
    Parse the scope in a control record's key; a later version's key covers everything.

    This is the scope that members obey and that operators see.
    """
    found = read(key.scope)
    if found is None or key.extra:
        return Read(Everything(), f"its key has version {key.version}")
    return found


def parse(text: str) -> Scope:
    """
    Parse a scope that will be written; every member must understand it.

    Raises:
        ScopeSyntaxError: the scope is malformed, or its pattern is not RE2.
        MissingExtraError: the scope is a pattern, and google-re2 is missing.
    """
    expression = scopes.expression_of(text)
    if expression is not None:
        scopes.check_expression(expression)
        return scopes.pattern(_compiled(expression))
    return scopes.parse(text)


def target(value: object) -> Scope:
    """
    Return the scope for a target of ``pause``, in a form that every member understands.

    Raises:
        ScopeSyntaxError: the scope is malformed, or its pattern is not RE2.
        TargetTypeError: the value has another type.
        MissingExtraError: the scope is a pattern, and google-re2 is missing.
    """
    if isinstance(value, str):
        return parse(value)  # not via scopes.of(), because RE2 may be invalid in Python
    found = scopes.of(value)
    return parse(str(found)) if isinstance(found, Pattern) else found


def _compiled(text: str) -> CompiledPattern:
    try:
        re2: Any = import_module("re2")
    except ModuleNotFoundError as error:
        raise MissingExtraError(_NEEDS_RE2) from error
    options = re2.Options()
    options.log_errors = False
    try:
        compiled: CompiledPattern = re2.compile(text, options)
    except UnicodeEncodeError as error:
        message = f"a pattern must be Unicode text, not {text[:60]!a}"
        raise ScopeSyntaxError(message) from error
    except re2.error as error:
        why = error.args[0] if error.args else error
        why = why.decode(errors="replace") if isinstance(why, bytes) else why
        message = f"'re:{text[:60]}' is not an RE2 pattern: {why}"
        raise ScopeSyntaxError(message) from error
    return compiled
