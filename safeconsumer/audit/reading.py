"""
The judge's own reading of partitions and scopes, which is nobody else's code.

What a scope covers is what the contract says: ``orders:3`` one partition, ``orders`` a
topic, ``re:ord.*`` the topics whose whole name matches, ``@all`` everything.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from safeconsumer.errors import JournalError

TopicPartition = tuple[str, int]
"""
A partition: its topic and its number.
"""

# org.apache.kafka.common.protocol: a partition's number is an INT32.
_MAX_PARTITION = 2**31 - 1
# org.apache.kafka.common.internals.Topic: MAX_NAME_LENGTH and LEGAL_CHARS.
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_NUMBER = re.compile(r"[0-9]{1,10}")
_MAX_PATTERN = 4096

# RE2 reads these otherwise than Python does: a class of characters by its name.
_OF_RE2 = re.compile(r"\[\[:")

_PATTERN, _EVERYTHING = "re:", "@all"

Covers = Callable[[TopicPartition], bool]


def tp_text(tp: TopicPartition) -> str:
    """
    Return a partition as journals name it.
    """
    return f"{tp[0]}:{tp[1]}"


def tp_of(text: str) -> TopicPartition:
    """
    Return the partition that a journal names so.

    Raises:
        ValueError: it names none.
    """
    topic, _, number = text.rpartition(":")
    if not topic or not _NUMBER.fullmatch(number):
        message = f"{text[:300]!r} is not a partition: write it as topic:number"
        raise ValueError(message)
    return topic, int(number)


@lru_cache(maxsize=4096)
def covering(scope: str) -> Covers:
    """
    Return what tells whether a scope covers a partition.

    Raises:
        JournalError: it is no scope, or a pattern whose meaning is not known here, such
            as one that only RE2 understands; what it covers cannot be told.
    """
    if scope == _EVERYTHING:
        return lambda _: True
    if scope.startswith(_PATTERN):
        return _matching(scope)
    topic, colon, number = scope.partition(":")
    if not _TOPIC.fullmatch(topic) or topic in {".", ".."}:
        message = f"{scope[:300]!r} is no scope: no topic has this name"
        raise JournalError(message)
    if not colon:
        return lambda tp: tp[0] == topic
    if not _NUMBER.fullmatch(number) or int(number) > _MAX_PARTITION:
        message = f"{scope[:300]!r} is no scope: write a partition as topic:number"
        raise JournalError(message)
    wanted = topic, int(number)
    return lambda tp: tp == wanted


def covered(
    scopes: Iterable[str], tps: Iterable[TopicPartition]
) -> set[TopicPartition]:
    """
    Return the partitions that any of the scopes covers.

    A scope that cannot be read here covers nothing: nothing is claimed of it.
    """
    found: set[TopicPartition] = set()
    tps = frozenset(tps)
    for scope in scopes:
        try:
            covers = covering(scope)
        except JournalError:
            continue
        alone = tp_of(scope) if is_partition(scope) else None
        found.update({alone} & tps if alone else filter(covers, tps))
    return found


def is_partition(scope: str) -> bool:
    """
    Tell whether a scope is a single partition.
    """
    return ":" in scope and not scope.startswith(_PATTERN)


def _matching(scope: str) -> Covers:
    text = scope.removeprefix(_PATTERN)
    if not 0 < len(text) <= _MAX_PATTERN or _OF_RE2.search(text):
        message = f"{scope[:60]!r}: what this pattern covers cannot be told here"
        raise JournalError(message)
    try:
        pattern = re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        message = f"{scope[:60]!r}: what this pattern covers cannot be told: {error}"
        raise JournalError(message) from error
    return lru_cache(maxsize=4096)(_whole(pattern))


def _whole(pattern: re.Pattern[str]) -> Covers:
    return lambda tp: pattern.fullmatch(tp[0]) is not None
