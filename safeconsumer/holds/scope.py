"""
Defines the scopes of holds: a partition, a topic, a pattern over topics, or all.

The command line, control records, ``repr`` and errors use one notation: ``orders:3``,
``orders``, ``re:ord.*``, ``@all``. Kafka allows a topic named ``re``. Because ``re:3``
is a pattern, partition 3 of that topic is written ``re:re:3``. This is not ambiguous:
as a pattern it could not match any topic, because topic names do not contain colons.
"""

import re
from collections.abc import Collection, Iterable
from functools import lru_cache
from operator import index
from typing import Any, Protocol

from attrs import field, frozen

from safeconsumer.errors.base import ScopeSyntaxError, TargetTypeError

# org.apache.kafka.common.internals.Topic: MAX_NAME_LENGTH and LEGAL_CHARS.
MAX_TOPIC_LENGTH = 249
_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
# org.apache.kafka.common.protocol: a partition index is an INT32.
_MAX_PARTITION = 2**31 - 1

# Text with this prefix is a pattern, unless it names a partition of a topic ``re``.
_PATTERN, _TOPIC_RE = "re:", "re"
_OF_RE = re.compile(r"re:re:[0-9]{1,10}")

# Longer expressions must be machine-made; topic names have at most 249 characters.
MAX_PATTERN_LENGTH = 4096

# The number of match results that a pattern caches, about 1 MB. Without a limit,
# an endless stream of new topic names would fill the memory.
_MOST_ANSWERS = 10_000

# This type is interchangeable with ``kafka.TopicPartition``, which is a named tuple.
TopicPartition = tuple[str, int]


class CompiledPattern(Protocol):
    """The attributes of a compiled ``re`` or ``re2`` pattern that this package uses."""

    @property
    def pattern(self) -> Any:  # noqa: ANN401 - str, but bytes must be caught
        """The text of the expression."""

    def fullmatch(self, string: str, /) -> object | None:
        """Return a match object if the whole string matches, otherwise None."""


@frozen(repr=False, cache_hash=True)
class Partition:
    """One partition of a topic, written ``orders:3`` (``re:re:3`` if the topic is ``re``)."""

    topic: str
    partition: int

    def covers(self, tp: TopicPartition) -> bool:
        """Return whether ``tp`` is this partition."""
        return tp == (self.topic, self.partition)

    def __str__(self) -> str:
        return partition_text(self.topic, self.partition)

    __repr__ = __str__


@frozen(repr=False)
class Topic:
    """All present and future partitions of one topic, written ``orders``."""

    topic: str

    def covers(self, tp: TopicPartition) -> bool:
        """Return whether ``tp`` belongs to this topic."""
        return tp[0] == self.topic

    def __str__(self) -> str:
        return self.topic

    __repr__ = __str__


@frozen(repr=False)
class Pattern:
    """
    All present and future topics whose whole name matches, written ``re:ord.*``.

    Two patterns are equal if their expressions have the same text. The expression is
    matched once for each topic name; the results for up to 10,000 names are cached.
    """

    text: str
    compiled: CompiledPattern = field(eq=False, repr=False)
    _answers: dict[str, bool] = field(factory=dict, init=False, eq=False, repr=False)

    def matches(self, topic: str) -> bool:
        """Return whether the whole topic name matches."""
        answer = self._answers.get(topic)
        if answer is None:
            if len(self._answers) >= _MOST_ANSWERS:
                self._answers.clear()
            answer = self._answers[topic] = self.compiled.fullmatch(topic) is not None
        return answer

    def covers(self, tp: TopicPartition) -> bool:
        """Return whether the topic of ``tp`` matches."""
        return self.matches(tp[0])

    def __str__(self) -> str:
        return f"re:{self.text}"

    __repr__ = __str__


@frozen(repr=False)
class Everything:
    """Everything that is or will be assigned, written ``@all``."""

    def covers(self, tp: TopicPartition) -> bool:  # noqa: ARG002 - as its siblings
        """Return True."""
        return True

    def __str__(self) -> str:
        return "@all"

    __repr__ = __str__


Scope = Partition | Topic | Pattern | Everything

ALL = Everything()
"""
The whole consumer or group as a target; ``pause(ALL)`` means ``pause("@all")``.
"""

Target = TopicPartition | str | CompiledPattern | Scope
"""
The types that ``pause`` accepts: a partition, text in scope notation, a pattern, a
scope.
"""


def of(target: object) -> Scope:
    """
    Return the scope of a target.

    Args:
        target: a ``kafka.TopicPartition`` or another pair of topic and number, text in
            the notation of scopes, a compiled pattern for whole topic names, or a
            scope, for example a hold's.

    Raises:
        ScopeSyntaxError: the target is not a valid scope.
        TargetTypeError: the target has another type.
    """
    if isinstance(target, tuple) and len(target) == 2:  # noqa: PLR2004 - a TopicPartition
        return partition(*target)
    if isinstance(target, Scope):
        return target
    if isinstance(target, str):
        return parse(target)
    if hasattr(target, "fullmatch") and hasattr(target, "pattern"):
        return pattern(target)
    message = (
        f"a target is a TopicPartition, a scope like 'orders:3', 'orders', 're:ord.*' "
        f"or '@all', a compiled pattern or a hold's scope, not {target!r:.200}"
    )
    raise TargetTypeError(message)


def partition(topic: object, number: object) -> Partition:
    """
    Check a topic name and a partition number; return the scope of the partition.

    Raises:
        ScopeSyntaxError: the name or the number is not valid in Kafka.
    """
    if type(topic) is str and type(number) is int:  # the usual case
        return _partition(topic, number)
    return _checked_partition(topic, number)


def _checked_partition(topic: object, number: object) -> Partition:
    name = _checked_topic(topic)
    which = _whole_number(number)
    if which is None:
        message = f"partition of topic {name!r} must be an int, not {number!r}"
        raise ScopeSyntaxError(message)
    if not 0 <= which <= _MAX_PARTITION:
        text = partition_text(name, which)
        message = f"{text} is not a partition: numbers are 0 to {_MAX_PARTITION}"
        raise ScopeSyntaxError(message)
    return Partition(name, which)


# The check is cached, because programs pause the same partitions repeatedly.
_partition = lru_cache(_MOST_ANSWERS)(_checked_partition)


def topic(name: object) -> Topic:
    """
    Check a topic name; return the scope of the topic.

    Raises:
        ScopeSyntaxError: the name is not valid in Kafka.
    """
    return Topic(_checked_topic(name))


def pattern(compiled: CompiledPattern) -> Pattern:
    """
    Return the scope of a compiled expression that matches whole topic names.

    Raises:
        ScopeSyntaxError: the expression is empty, too long or a bytes pattern, or was
            compiled with flags that its text does not contain. Write the flags into the
            text, for example ``(?i)...``.
    """
    text = compiled.pattern
    if not isinstance(text, str):
        message = f"pattern {text!r} is made of bytes; topic names are text"
        raise ScopeSyntaxError(message)
    check_expression(text)
    if isinstance(compiled, re.Pattern) and re.compile(text).flags != compiled.flags:
        message = f"pattern re:{text} was compiled with flags; write (?i) inline"
        raise ScopeSyntaxError(message)
    return Pattern(text, compiled)


def parse(text: str) -> Scope:
    """
    Parse a scope in scope notation. This is the inverse of ``str(scope)``.

    Raises:
        ScopeSyntaxError: the text is not a scope; the message quotes the text.
    """
    if text == "@all":
        return Everything()
    expression = expression_of(text)
    if expression is not None:
        check_expression(expression)
        try:
            return pattern(re.compile(expression))
        except (re.error, OverflowError, RecursionError) as error:
            message = f"{text[:60]!r} is not a pattern: {error}"
            raise ScopeSyntaxError(message) from error
    name, colon, number = text.removeprefix(_PATTERN).partition(":")
    if not colon:
        return topic(name)
    is_number = number.isascii() and number.isdigit()
    if not is_number or len(number) > len(str(_MAX_PARTITION)):
        message = f"{text[:300]!r} is not a partition: write it as topic:number"
        raise ScopeSyntaxError(message)
    return partition(name, int(number))


def partition_text(topic: str, numbers: int | str) -> str:
    """
    Return partitions of a topic in scope notation, such as ``orders:3``.

    Args:
        topic: the topic.
        numbers: the number of a partition; or numbers and ranges as text, such as
            ``0-2,5``.
    """
    mark = _PATTERN if topic == _TOPIC_RE else ""
    return f"{mark}{topic}:{numbers}"


def matched(
    scopes: Iterable[Scope], names: Collection[str]
) -> tuple[tuple[str, ...], frozenset[Scope]]:
    """Return the topics that the scopes cover, and the patterns that cover no topic."""
    found, idle = set[str](), set[Scope]()
    for scope in scopes:
        if isinstance(scope, Pattern):
            covered = [name for name in sorted(names) if scope.matches(name)]
            found.update(covered)
            if not covered:
                idle.add(scope)
        elif isinstance(scope, Partition | Topic):
            found.add(scope.topic)
    return tuple(sorted(found)), frozenset(idle)


def expression_of(text: str) -> str | None:
    """Return the expression in a pattern's text, or None for any other text."""
    if not text.startswith(_PATTERN) or _OF_RE.fullmatch(text):
        return None
    return text.removeprefix(_PATTERN)


def check_expression(text: str) -> None:
    """
    Refuse an unusable expression before it is compiled, which could take seconds.

    Raises:
        ScopeSyntaxError: the expression is empty, is too long, cannot be written as
            UTF-8, or reads like a partition of the topic ``re``.
    """
    if not 0 < len(text) <= MAX_PATTERN_LENGTH:
        message = (
            f"a pattern must have 1 to {MAX_PATTERN_LENGTH} characters, "
            f"this one has {len(text)}"
        )
        raise ScopeSyntaxError(message)
    if _OF_RE.fullmatch(_PATTERN + text):
        message = (
            f"no topic's name matches the pattern {text!r}, and re:{text} is a "
            f"partition of the topic re: pause that as text, 're:{text}'"
        )
        raise ScopeSyntaxError(message)
    if any("\ud800" <= one <= "\udfff" for one in text):
        message = f"a pattern must be Unicode text, {text[:60]!r} cannot be written"
        raise ScopeSyntaxError(message)


def _whole_number(value: object) -> int | None:
    # As in kafka-python, other integer types such as numpy's are accepted, but not
    # True.
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    return index(value)


def _checked_topic(name: object) -> str:
    if not isinstance(name, str):
        message = f"a topic name must be text, not {name!r}"
        raise ScopeSyntaxError(message)
    if (
        name in {".", ".."}
        or len(name) > MAX_TOPIC_LENGTH
        or not _LEGAL_TOPIC.fullmatch(name)
    ):
        message = (
            f"{name[:MAX_TOPIC_LENGTH]!r} is not a topic name: 1 to "
            f"{MAX_TOPIC_LENGTH} of a-z A-Z 0-9 . _ -, and not . or .."
        )
        if "*" in name:
            message += (
                f"; a pattern is {_PATTERN}{name.replace('.*', '*').replace('*', '.*')}"
            )
        raise ScopeSyntaxError(message)
    return name
