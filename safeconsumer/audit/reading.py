"""
Parses partitions and scopes for the judge, without code that other packages use.

The contract defines which partitions a scope covers: ``orders:3`` one partition,
``orders`` a topic, ``re:ord.*`` the topics whose whole name matches, ``@all``
everything. A partition of a topic named ``re`` is written ``re:re:3``: as a pattern
this text would match no topic, because topic names cannot contain a colon.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from typing import Any

from safeconsumer.errors.base import JournalError

TopicPartition = tuple[str, int]
"""
A partition: its topic and its number.
"""

# org.apache.kafka.common.protocol: a partition's number is an INT32.
_MAX_PARTITION = 2**31 - 1
# org.apache.kafka.common.internals.Topic: MAX_NAME_LENGTH and LEGAL_CHARS.
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_NUMBER = re.compile(r"[0-9]{1,10}")
_OF_RE = re.compile(r"re:re:[0-9]{1,10}")
_MAX_PATTERN = 4096

# RE2 and Python read named character classes differently.
_OF_RE2 = re.compile(r"\[\[:")

_PATTERN, _EVERYTHING = "re:", "@all"

Covers = Callable[[TopicPartition], bool]


def tp_of(text: str) -> TopicPartition:
    """
    Return the partition that a journal writes under this name.

    Raises:
        ValueError: the text is not the name of a partition.
    """
    topic, _, number = text.rpartition(":")
    if not topic or not _NUMBER.fullmatch(number):
        message = f"{text[:300]!r} is not a partition: write topic:number"
        raise ValueError(message)
    return topic, int(number)


@lru_cache(maxsize=4096)
def is_topic(name: str) -> bool:
    """Return whether Kafka allows a topic of this name."""
    return _TOPIC.fullmatch(name) is not None and name not in {".", ".."}


@lru_cache(maxsize=4096)
def covering(scope: str) -> Covers:
    """
    Return a function that decides whether a scope covers a partition.

    Patterns have RE2's syntax: a pattern that Python's ``re`` cannot handle is passed
    to RE2, if RE2 is installed.

    Raises:
        JournalError: the text is not a scope, or is a pattern that neither Python's
            ``re`` nor an installed RE2 accepts.
    """
    if scope == _EVERYTHING:
        return lambda _: True
    if _OF_RE.fullmatch(scope):
        scope = scope.removeprefix(_PATTERN)
    elif scope.startswith(_PATTERN):
        return _matching(scope)
    topic, colon, number = scope.partition(":")
    if not is_topic(topic):
        message = f"{scope[:300]!r} is not a scope: no topic has this name"
        raise JournalError(message)
    if not colon:
        return lambda tp: tp[0] == topic
    if not _NUMBER.fullmatch(number) or int(number) > _MAX_PARTITION:
        message = f"{scope[:300]!r} is not a scope: write a partition as topic:number"
        raise JournalError(message)
    wanted = topic, int(number)
    return lambda tp: tp == wanted


def place_of(scope: str) -> TopicPartition | str | None:
    """Return the partition or topic that a scope names; None for a pattern or ``@all``."""
    if is_partition(scope):
        with suppress(ValueError):
            return partition_of(scope)
    return scope if is_topic(scope) else None


def may_be_scope(scope: str) -> bool:
    """Return whether this text can be the scope of a group's hold."""
    if scope.startswith(_PATTERN):
        return 0 < len(scope) - len(_PATTERN) <= _MAX_PATTERN
    try:
        covering(scope)
    except JournalError:
        return False
    return True


def is_partition(scope: str) -> bool:
    """Return whether a scope is a single partition."""
    is_pattern = scope.startswith(_PATTERN) and not _OF_RE.fullmatch(scope)
    return ":" in scope and not is_pattern


def partition_of(text: str) -> TopicPartition:
    """
    Return the partition that a user names as TOPIC:NUMBER, or by its scope.

    Raises:
        ValueError: the text is not the name of a partition.
    """
    of_re = _OF_RE.fullmatch(text)
    topic, number = tp_of(text.removeprefix(_PATTERN) if of_re else text)
    if not is_topic(topic):
        message = f"{topic[:300]!r} is not a topic name"
        raise ValueError(message)
    if number > _MAX_PARTITION:
        message = f"{text[:300]!r} is no partition: numbers end at {_MAX_PARTITION}"
        raise ValueError(message)
    return topic, number


def _matching(scope: str) -> Covers:
    text = scope.removeprefix(_PATTERN)
    pattern = _compiled(text) if 0 < len(text) <= _MAX_PATTERN else None
    if pattern is None:
        message = f"{scope[:60]!r}: it is unknown here what this pattern covers"
        raise JournalError(message)
    return lru_cache(maxsize=4096)(lambda tp: pattern.fullmatch(tp[0]) is not None)


def _compiled(text: str) -> Any:  # noqa: ANN401 - Python's, or RE2's, which is untyped
    if not _OF_RE2.search(text):
        with suppress(re.error, OverflowError, RecursionError):
            return re.compile(text)
    try:
        re2 = import_module("re2")
    except ModuleNotFoundError:
        return None
    options = re2.Options()
    options.log_errors = False
    with suppress(re2.error):
        return re2.compile(text, options)
    return None
