"""Reads a topic of dead letters, selects letters, and shows their content."""

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import kafka.errors as kafka_errors
from attrs import field, frozen
from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from safeconsumer.cli import records
from safeconsumer.cli.cluster import existing, partitions_of
from safeconsumer.cli.errors import CommandError, complain
from safeconsumer.cli.statuses import Status
from safeconsumer.consumer import SafeConsumer
from safeconsumer.group import clients
from safeconsumer.group.survey import ends_of
from safeconsumer.holds.explain import utc
from safeconsumer.worker.letters_format import Letter, letter_of

HEAD = ("letter", "written", "from", "error", "attempts", "group", "message")
_MESSAGE = 60
# The maximum number of letters that one poll returns, to limit the memory needed in
# addition to fetched data.
_POLL_RECORDS = 500
_ANSWER_MS = 10_000
# The maximum number of topics or errors that a message names.
_NAMED = 5

Marks = dict[TopicPartition, OffsetAndMetadata]


def place_of(text: str) -> str:
    """
    Return a partition or offset as letters name it.

    Partition 3 of a topic ``re`` is ``re:3`` in letters; in log lines, and in commands
    that accept patterns, it is ``re:re:3``.
    """
    return text.removeprefix("re:") if text.startswith("re:re:") else text


def _places_of(several: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(place_of, several))


@frozen(kw_only=True)
class Wanted:
    """
    Selects letters; by default, all letters in a topic.

    Attributes:
        origins: topics, partitions or offsets of the failed records; empty for any.
        errors: names of exception classes, with or without module; empty for any.
        since: the earliest time of selected letters, in seconds since the epoch; None
            for any time.
        limit: the maximum number of letters; None for no limit.
    """

    origins: tuple[str, ...] = field(default=(), converter=_places_of)
    errors: tuple[str, ...] = ()
    since: float | None = None
    limit: int | None = None

    @property
    def is_filter(self) -> bool:
        """Whether this may skip letters that another run could select."""
        return bool(self.origins or self.errors) or self.since is not None

    def takes(self, letter: Letter) -> bool:
        """
        Return whether a record is selected.

        A record that is not a letter is selected only if neither origins nor errors are
        set.
        """
        if self.since is not None and letter.record.timestamp / 1000 < self.since:
            return False
        if letter.why:
            return not (self.origins or self.errors)
        if self.origins and _places(letter).isdisjoint(self.origins):
            return False
        return not self.errors or any(_has(letter, one) for one in self.errors)


ALL = Wanted()


def _has(letter: Letter, error: str) -> bool:
    return f".{letter.exception or ''}".endswith(f".{error}")


def _first(several: Collection[str]) -> str:
    more = ", ..." if len(several) > _NAMED else ""
    return ", ".join(sorted(several)[:_NAMED]) + more


def _places(letter: Letter) -> set[str]:
    return {letter.topic, f"{letter.topic}:{letter.partition}", letter.place}


@frozen
class Letters:
    """
    A topic with dead letters, with a consumer that reads it up to given end offsets.

    Attributes:
        base: kafka-python's configuration.
        consumer: the consumer, which starts at its current positions.
        ends: by partition, the offset at which reading ends.
        passed: the number of offsets that are skipped because they were committed.
    """

    base: Mapping[str, Any]
    consumer: SafeConsumer
    ends: Mapping[TopicPartition, int]
    passed: int = 0

    def read(
        self, wanted: Wanted = ALL, is_over: Callable[[], bool] = lambda: False
    ) -> Iterator[list[Letter]]:
        """
        Yield the selected records, several at a time, in order within each partition.

        If no letter has a selected error, a line on stderr names that error and the
        errors that letters do have. The same is done for an origin if committed letters
        were skipped, because these may have that origin.

        Raises:
            StoppedError: ``is_over`` returned True, perhaps while no broker answered.
            CommandError: the broker stopped answering; or all letters were read, and a
                selected origin neither is a letter's origin nor exists in the cluster.
            KafkaError: the topic cannot be read.
        """
        left, strange, topics = wanted.limit, {*wanted.origins}, set[str]()
        lacking, errors = {*wanted.errors}, set[str]()
        for _, several in records.read(self.consumer, self.ends, is_over):
            piece = list(map(letter_of, several))
            found = [one for one in piece if wanted.takes(one)][:left]
            if found:
                yield found
            if left is not None:
                left -= len(found)
                if not left:
                    return
            for letter in piece if wanted.origins or wanted.errors else ():
                strange -= _places(letter)
                topics.add(letter.topic)
                lacking = {one for one in lacking if not _has(letter, one)}
                errors.add(letter.exception or "")
        where = "from here on " if self.passed else ""
        if strange and self.passed:
            missing = f"no letter is from {', '.join(sorted(strange))}"
            known = _first(topics - {""}) or "nowhere"
            complain(f"{where}{missing}; the letters are from {known}")
        elif strange:
            self._refuse(strange, topics - {""})
        if lacking and (errors := errors - {""}):
            missing = f"no letter has the error {', '.join(sorted(lacking))}"
            complain(f"{where}{missing}; the letters have {_first(errors)}")

    def _refuse(self, origins: set[str], topics: set[str]) -> None:
        origins -= _existing(self.base, origins)
        if origins:
            do, them = ("does", "it") if len(origins) == 1 else ("do", "them")
            message = (
                f"{', '.join(sorted(origins))} {do} not exist, and no letter is from "
                f"{them}; the letters are from {_first(topics) or 'nowhere'}"
            )
            raise CommandError(message, Status.FAILED)

    def commit(self, marks: Marks | None) -> None:
        """
        Commit offsets for the group; None commits the current positions.

        Raises:
            CommandError: the group has members.
            KafkaError: the broker refuses the commit, or does not answer.
        """
        try:
            self.consumer.commit(marks, timeout_ms=_ANSWER_MS)
        except kafka_errors.CommitFailedError as error:
            group = self.consumer.config["group_id"]
            message = (
                f"the group {group} has members, which commit, too: stop them first"
            )
            raise CommandError(message) from error


def _existing(base: Mapping[str, Any], origins: Collection[str]) -> set[str]:
    """Return the origins that exist in the cluster; an offset's record may be gone."""
    names = {one.partition(":")[0] for one in origins}
    found, tps = set[str](), dict[str, TopicPartition]()
    for name, numbers in partitions_of(base, names).items():
        if numbers is not None:
            found.add(name)
            tps |= {f"{name}:{one}": TopicPartition(name, one) for one in numbers}

    offsets: dict[str, tuple[TopicPartition, int]] = {}
    for origin in origins:
        place, _, offset = origin.partition("@")
        if place in tps and offset.isdecimal():
            offsets[origin] = tps[place], int(offset)
    ends = _ends(base, {tp for tp, _ in offsets.values()})
    found |= {one for one, (tp, at) in offsets.items() if at < ends.get(tp, math.inf)}

    return found | tps.keys()


def _ends(
    base: Mapping[str, Any], tps: Collection[TopicPartition]
) -> Mapping[TopicPartition, int]:
    # Returns the ends only of partitions that have a leader.
    if not tps:
        return {}
    with clients.Queries(base) as queries:
        return ends_of(tps, queries)


@contextmanager
def opened(
    base: Mapping[str, Any],
    topic: str,
    *,
    group: str | None = None,
    at: tuple[int, int] | None = None,
) -> Iterator[Letters]:
    """
    Provide a reader for a topic with dead letters.

    Args:
        base: kafka-python's configuration.
        topic: the topic with the dead letters.
        group: the group whose committed offsets reading starts at; None to start at the
            first letter.
        at: the partition and offset of the only letter to read; None for all letters.

    Raises:
        CommandError: the topic does not exist.
        KafkaError: the broker does not answer, or refuses a request.
    """
    numbers = sorted(existing(base, [topic])[topic])
    tps = [TopicPartition(topic, one) for one in numbers if not at or one == at[0]]
    settings = {
        "auto_offset_reset": "earliest",
        "group_id": group,
        "isolation_level": "read_committed",
        "max_poll_records": _POLL_RECORDS,
    }
    with clients.reader({**base, **settings}) as consumer:
        consumer.assign(tps)
        ends = consumer.end_offsets(tps) if tps else {}
        if at is None:
            yield Letters(base, consumer, ends, _seek_committed(consumer, ends))
            return
        for tp in tps:
            consumer.seek(tp, at[1])
        yield Letters(base, consumer, {tp: min(ends[tp], at[1] + 1) for tp in tps})


def _seek_committed(consumer: SafeConsumer, ends: Mapping[TopicPartition, int]) -> int:
    # Seeks to the committed offsets if they are still in the topic, and counts the
    # skipped offsets.
    passed = 0
    for tp, begin in (consumer.beginning_offsets([*ends]) if ends else {}).items():
        position = consumer.position(tp, timeout_ms=_ANSWER_MS)
        if position is None:
            message = f"no answer about the committed offset of {tp.topic}"
            raise kafka_errors.KafkaTimeoutError(message)
        if begin <= position <= ends[tp]:
            passed += position - begin
        else:  # like a consumer with auto_offset_reset="earliest"
            consumer.seek_to_beginning(tp)
    return passed


# ------------------------------------------------------------ output


def _when(milliseconds: int) -> str:
    return utc(milliseconds / 1000) if milliseconds >= 0 else "time unknown"


def row(letter: Letter) -> tuple[str, ...]:
    """Return a record as a table row with the columns in :data:`HEAD`."""
    at = _when(letter.record.timestamp)
    if letter.why:
        return letter.name, at, "-", "no letter", "-", "-", letter.why
    lines = (letter.message or "").split("\n")
    message = lines[0] if len(lines) == 1 else f"{lines[0]}..."
    return (
        letter.name,
        at,
        letter.place,
        letter.exception or "-",
        "-" if letter.attempts is None else str(letter.attempts),
        letter.group or "-",
        message if len(message) <= _MESSAGE else f"{message[: _MESSAGE - 3]}...",
    )


def document(letter: Letter) -> dict[str, Any]:
    """Return a record as plain JSON values."""
    fields: dict[str, Any] = {
        "letter": letter.name,
        "written": letter.record.timestamp,
        "is_letter": not letter.why,
        "why": letter.why or None,
    }
    if not letter.why:
        fields |= {
            "from": letter.place,
            "timestamp": letter.timestamp,
            "group": letter.group,
            "attempts": letter.attempts,
            "exception": letter.exception,
            "message": letter.message,
            "stack": letter.stack,
            "null_headers": letter.null_headers or None,
        }
    return fields | {
        "headers": [
            {"name": name, **(_plain(data) or {})} for name, data in letter.headers
        ],
        "key": _plain(letter.key),
        "value": _plain(letter.value),
    }


def _plain(data: bytes | None) -> dict[str, str] | None:
    if data is None:
        return None
    text = _text(data)
    return {"hex": data.hex()} if text is None else {"text": text}


def lines(letter: Letter) -> Iterator[str]:
    """Yield the content of :func:`document` as lines for people."""
    for name, value in document(letter).items():
        if name == "headers":
            yield f"headers    {len(value)}"
            for header in value:
                yield from _field(f"  {header['name']}", _shown(header))
        elif name in ("key", "value"):
            yield from _field(name, _shown(value or {}))
        elif name in ("written", "timestamp") and value is not None:
            yield from _field(name, _when(value))
        elif value is not None and name != "is_letter":
            yield from _field(name, str(value))


def _shown(data: Mapping[str, str]) -> str:
    # Put ambiguous text in quotes, so that different values never look the same.
    if "hex" in data:
        return f"hex {data['hex']}"
    text = data.get("text")
    if text is None:
        return "null"
    is_plain = text != "null" and not text.startswith(("hex ", '"'))
    return text if is_plain else json.dumps(text, ensure_ascii=False)


def _field(name: str, text: str) -> Iterator[str]:
    if "\n" not in text:
        yield f"{name:<10} {text}"
        return
    yield name
    yield from (f"    {line}" for line in text.split("\n"))


def _text(data: bytes) -> str | None:
    # Data counts as text only if it is UTF-8, and printable except for tabs and line
    # breaks.
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    plain = text.replace("\n", "").replace("\t", "")
    return text if plain.isprintable() else None
