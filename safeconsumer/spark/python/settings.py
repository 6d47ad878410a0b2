"""Parses the Python source's options into one frozen value; refuses other options."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

from attrs import field, frozen

from safeconsumer.errors.base import ClientPropertyError, SparkSettingError
from safeconsumer.group.properties import client_configs
from safeconsumer.holds.scope import partition_text
from safeconsumer.spark import options as holds_options
from safeconsumer.spark.options import SourceOptions

BOOTSTRAP = "kafka.bootstrap.servers"
_KAFKA = "kafka."
_TOPICS_OPTIONS = ("subscribe", "subscribePattern", "assign")
# Each option that does not concern holds, with its default and its meaning.
OPTIONS: Mapping[str, tuple[str, str]] = {
    "subscribe": ("", "Topics, with commas between them."),
    "subscribePattern": ("", "A regular expression that matches a part of the name."),
    "assign": ("", 'Partitions: `{"orders":[0,1]}`.'),
    "startingOffsets": (
        "latest",
        '`earliest`, `latest` or `{"orders":{"0":23,"1":-2}}`; -2 and -1 are these.',
    ),
    "failOnDataLoss": ("true", "Whether lost records fail the query."),
    "maxOffsetsPerTrigger": ("", "The maximum number of offsets in one batch."),
    "minPartitions": ("", "The minimum number of ranges in a batch."),
    "minRecordsPerTask": (
        "",
        "The minimum number of offsets for a task, which may read several ranges.",
    ),
    "includeHeaders": ("false", "Whether rows have a column with the headers."),
    "kafkaConsumer.pollTimeoutMs": (
        "120000",
        "How long a range may make no progress before its task fails.",
    ),
}
# Java's names of the settings for reading, and kafka-python's. The settings of the
# connection are translated by group.properties.
_READING: Mapping[str, str] = {
    name: name.replace(".", "_")
    for name in (
        *("check.crcs", "fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes"),
        *("isolation.level", "max.partition.fetch.bytes", "max.poll.records"),
        *("metadata.max.age.ms", "request.timeout.ms"),
    )
}
_FETCHING: Mapping[str, Any] = {
    "fetch_max_wait_ms": 20,
    "max_partition_fetch_bytes": 4 << 20,
    "max_poll_records": 20_000,
}
# The settings that select records; other values would lose rows.
_OWNED = frozenset(
    {
        *("auto.offset.reset", "enable.auto.commit", "group.id", "interceptor.classes"),
        *("key.deserializer", "value.deserializer"),
    }
)
# kafka-python reads only PEM, so Java's setting for it has no effect.
_FORMATS = frozenset({"ssl.keystore.type", "ssl.truststore.type"})
_CHOICES = {
    "check.crcs": ("true", "false"),
    "isolation.level": ("read_uncommitted", "read_committed"),
}
# In a character class Java unites nested classes, and && means intersection. Python
# reads both as characters, and would silently match other topics.
_ONLY_JAVA = re.compile(r"\[[^\]]*(\[|&&)")
_MAX_DIGITS = 18
EARLIEST, LATEST = -2, -1


@frozen(kw_only=True)
class Settings:
    """
    The options of one stream.

    Attributes:
        holds: the holds and limits that the stream obeys, and whether a loss fails it.
        topics_option: the option that names the topics, in lower case.
        wanted: the topics, the expression, or the partitions, by ``topics_option``.
        starting: ``earliest``, ``latest``, or offsets by partition.
        max_offsets: the maximum number of offsets in a batch; None for no limit.
        min_ranges: the minimum number of ranges in a batch.
        min_records: the minimum number of offsets that a task reads, if there are that
            many.
        has_headers: whether rows have headers.
        patience: seconds for which a range may make no progress.
        connection: kafka-python's settings for the connection, with secrets.
        fetching: kafka-python's settings for reading.
    """

    holds: SourceOptions
    topics_option: str
    wanted: Any
    starting: str | Mapping[tuple[str, int], int]
    max_offsets: int | None
    min_ranges: int
    min_records: int
    has_headers: bool
    patience: float
    connection: Mapping[str, Any] = field(repr=False)
    fetching: Mapping[str, Any]


def parse(options: Mapping[str, str]) -> Settings:
    """
    Read the options of one stream; their names are not case-sensitive, as in Spark.

    Raises:
        SparkSettingError: an option is missing, unknown, or has an invalid value; the
            message names the option.
    """
    given = {name.lower(): str(value) for name, value in options.items()}
    holds = holds_options.parse(given)
    _refuse_unknown(given)
    topics_option = _topics_option(given)
    kafka = holds_options.properties(given, _KAFKA)
    return Settings(
        holds=holds,
        topics_option=topics_option,
        wanted=_WANTED[topics_option](given[topics_option]),
        starting=_starting(given),
        max_offsets=_whole(given, "maxOffsetsPerTrigger") or None,
        min_ranges=_whole(given, "minPartitions"),
        min_records=_whole(given, "minRecordsPerTask"),
        has_headers=_choice(given, "includeHeaders", ("true", "false")) == "true",
        patience=_whole(given, "kafkaConsumer.pollTimeoutMs") / 1000,
        connection=connection(kafka),
        fetching=_fetching(kafka),
    )


def connection(properties: Mapping[str, str]) -> dict[str, Any]:
    """
    Return kafka-python's settings for a connection, without those for reading.

    Raises:
        SparkSettingError: a property is refused, or cannot be translated.
    """
    found: dict[str, Any] = {}
    for name, value in properties.items():
        if name in _OWNED:
            message = f"kafka.{name} is this source's own and cannot be set"
            raise SparkSettingError(message)
        if name in _READING or (name in _FORMATS and value.upper() == "PEM"):
            continue
        try:
            translated = client_configs({name: value})
        except ClientPropertyError as error:
            message = f"kafka.*: {error}"
            raise SparkSettingError(message) from error
        if not translated:
            message = (
                f"kafka.{name}={value!r:.60} is not supported by the Python source"
            )
            raise SparkSettingError(message)
        found.update(translated)
    return found


def _fetching(kafka: Mapping[str, str]) -> dict[str, Any]:
    found = dict(_FETCHING)
    for name, value in kafka.items():
        if name not in _READING:
            continue
        if name in _CHOICES:
            chosen = _choice({_KAFKA + name: value}, _KAFKA + name, _CHOICES[name])
            found[_READING[name]] = {"true": True, "false": False}.get(chosen, chosen)
        else:
            found[_READING[name]] = _whole({_KAFKA + name: value}, _KAFKA + name)
    return found


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = {name.lower() for name in OPTIONS}
    for name in given:
        if not (name in known or name.startswith((_KAFKA, "hold"))):
            message = (
                f"option {name} is not supported by the Python source, which has "
                f"{', '.join(OPTIONS)}, {_KAFKA}* and holds.*"
            )
            raise SparkSettingError(message)
    if not given.get(BOOTSTRAP):
        message = f"option {BOOTSTRAP} is missing"
        raise SparkSettingError(message)


def _topics_option(given: Mapping[str, str]) -> str:
    chosen = [name for name in _TOPICS_OPTIONS if name.lower() in given]
    if len(chosen) != 1:
        message = (
            f"exactly one of {', '.join(_TOPICS_OPTIONS)} must be given, not "
            f"{' and '.join(chosen) or 'none'}"
        )
        raise SparkSettingError(message)
    return chosen[0].lower()


def _topics(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(one.strip() for one in text.split(",")))
    if not all(names):
        message = f"subscribe takes topics with commas between them, not {text!r:.60}"
        raise SparkSettingError(message)
    return names


def _pattern(text: str) -> str:
    trouble = ""
    if _ONLY_JAVA.search(text):  # checked first, as Python only warns
        trouble = "nested classes and && mean something else in Python"
    else:
        try:
            re.compile(text)
        except re.error as error:
            trouble = str(error)
    if trouble:
        message = f"subscribePattern={text!r:.120} cannot be used: {trouble}"
        raise SparkSettingError(message)
    return text


def _assigned(text: str) -> tuple[tuple[str, int], ...]:
    named = _document("assign", text)
    found: list[tuple[str, int]] = []
    for topic, numbers in named.items():
        if not isinstance(numbers, list) or not all(map(_is_whole, numbers)):
            message = f'assign takes {{"orders":[0,1]}}, not {text!r:.120}'
            raise SparkSettingError(message)
        found.extend((topic, number) for number in numbers)
    return tuple(dict.fromkeys(found))


_WANTED: Mapping[str, Callable[[str], object]] = {
    "subscribe": _topics,
    "subscribepattern": _pattern,
    "assign": _assigned,
}


def _starting(given: Mapping[str, str]) -> str | dict[tuple[str, int], int]:
    text = _text(given, "startingOffsets").strip()
    if text.lower() in {"earliest", "latest"}:
        return text.lower()
    found: dict[tuple[str, int], int] = {}
    for topic, numbers in _document("startingOffsets", text).items():
        named = numbers if isinstance(numbers, dict) else {str(numbers): None}
        for number, offset in named.items():
            is_number = number.isascii() and number.isdigit()
            if not (is_number and _is_offset(offset)) or (topic, int(number)) in found:
                message = (
                    "startingOffsets names each partition once, with an offset of 0 or "
                    f"more, -1 or -2, not {partition_text(topic, number)} {offset!r:.40}"
                )
                raise SparkSettingError(message)
            found[topic, int(number)] = offset
    return found


def _document(name: str, text: str) -> dict[str, Any]:
    try:
        read = json.loads(text)
    except ValueError:
        read = None
    if not isinstance(read, dict) or not read:
        message = f"option {name} is not JSON of topics: {text!r:.120}"
        raise SparkSettingError(message)
    return read


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_offset(value: object) -> TypeGuard[int]:
    return _is_whole(value) or value in {EARLIEST, LATEST}


def _text(given: Mapping[str, str], name: str) -> str:
    default, _ = OPTIONS.get(name, ("", ""))
    return given.get(name.lower(), default)


def _choice(given: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    chosen = _text(given, name).strip().lower()
    if chosen not in choices:
        message = f"{name} is {' or '.join(choices)}, not {chosen!r:.60}"
        raise SparkSettingError(message)
    return chosen


def _whole(given: Mapping[str, str], name: str) -> int:
    """Return a number above zero; 0 if the option is missing and has no default."""
    text = _text(given, name).strip()
    if not text and name.lower() not in given:
        return 0
    is_number = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
    if not is_number or int(text) < 1:
        message = f"{name} must be a whole number above 0, not {text!r:.60}"
        raise SparkSettingError(message)
    return int(text)
