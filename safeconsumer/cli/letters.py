"""Reads a topic of dead letters, and shows what is in it."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from attrs import frozen
from kafka import KafkaConsumer, TopicPartition

from safeconsumer._kafka.of_group.no_topics import NoTopicsClient
from safeconsumer.cli import records
from safeconsumer.cli.cluster import existing
from safeconsumer.group.clients import BOOTSTRAP_MS
from safeconsumer.group.durations import seconds_of
from safeconsumer.holds.explain import utc
from safeconsumer.worker.letters_format import (
    NotALetterError,
    StoredLetter,
    letter_of,
)

_HEAD = ("letter", "written", "from", "error", "attempts", "group", "message")
_MESSAGE = 60


@frozen(kw_only=True)
class Found:
    """
    A record of a topic of dead letters.

    Attributes:
        record: kafka-python's, its key and value as bytes.
        letter: the letter in it; None if it is not a letter.
        why: why it is not a letter.
    """

    record: Any
    letter: StoredLetter | None
    why: str = ""

    @property
    def tp(self) -> TopicPartition:
        """The partition of the topic of dead letters in which it is."""
        return TopicPartition(self.record.topic, self.record.partition)

    @property
    def place(self) -> str:
        """Its place, such as ``orders.dlq:0@17``."""
        return f"{self.record.topic}:{self.record.partition}@{self.record.offset}"


@frozen(kw_only=True)
class Wanted:
    """
    Selects letters; by default all of a topic.

    Attributes:
        origins: topics, partitions or offsets where they failed; empty for any.
        errors: classes of exceptions, with or without module; empty for any.
        since: written at or after this moment, in seconds since the epoch.
            partition: a partition of the topic of dead letters.
        offset: an offset there.
    """

    origins: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    since: float | None = None
    partition: int | None = None
    offset: int | None = None

    def takes(self, one: Found) -> bool:
        """
        Tell whether a record is selected.

        One that is not a letter has no origin or error.
        """
        at = one.record.timestamp / 1000
        if self.since is not None and at < self.since:
            return False
        if self.offset is not None and one.record.offset != self.offset:
            return False
        if one.letter is None:
            return not (self.origins or self.errors)
        return self._is_from(one.letter) and self._is_error(one.letter)

    def _is_from(self, letter: StoredLetter) -> bool:
        places = {letter.topic, f"{letter.topic}:{letter.partition}", letter.place}
        return not self.origins or not places.isdisjoint(self.origins)

    def _is_error(self, letter: StoredLetter) -> bool:
        error = letter.exception or ""
        names = self.errors
        return not names or any(
            error == one or error.endswith(f".{one}") for one in names
        )


class Letters:
    """
    Reads a topic of dead letters from its beginning to its present end.

    Args:
        base: kafka-python's configuration.
        topic: of dead letters.
        group: the group whose committed offsets :attr:`consumer` may read and write.

    Attributes:
        consumer: the consumer that reads.
        group: as it was given.
        begins: the first offset that still exists, by partition.
        ends: the offset at which reading ends, by partition.
    """

    def __init__(
        self, base: Mapping[str, Any], topic: str, group: str | None = None
    ) -> None:
        self.group = group
        self.consumer: Any = KafkaConsumer(
            **{"bootstrap_timeout_ms": BOOTSTRAP_MS, **base},
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            kafka_client=NoTopicsClient,
        )
        numbers = self.consumer.partitions_for_topic(topic) or ()
        self._tps = [TopicPartition(topic, number) for number in sorted(numbers)]
        self.begins: dict[TopicPartition, int] = {}
        self.ends: dict[TopicPartition, int] = {}
        if self._tps:
            self.consumer.assign(self._tps)
            self.begins = self.consumer.beginning_offsets(self._tps)
            self.ends = self.consumer.end_offsets(self._tps)

    def read(self, wanted: Wanted) -> Iterator[Found]:
        """
        Yield the selected records, each partition in its order.

        Raises:
            CommandError: the broker stopped answering.
            KafkaError: the topic cannot be read.
        """
        return (one for one in self.each(wanted, self.begins) if wanted.takes(one))

    def each(
        self,
        wanted: Wanted,
        begins: Mapping[TopicPartition, int],
        is_over: Callable[[], bool] = lambda: False,
    ) -> Iterator[Found]:
        """
        Yield every record since ``begins`` of the partitions and offsets selected.

        Raises:
            StoppedError: ``is_over`` returned True, also while no broker answers.
            CommandError: the broker stopped answering.
            KafkaError: the topic cannot be read.
        """
        tps = [tp for tp in self._tps if wanted.partition in (None, tp.partition)]
        at = wanted.offset
        starts = {tp: max(begins[tp], at or 0) for tp in tps}
        ends = self.ends
        if at is not None:
            ends = {tp: min(end, at + 1) for tp, end in ends.items()}
        for _, several in records.read(self.consumer, starts, ends, is_over):
            yield from map(found, several)


@contextmanager
def opened(
    base: Mapping[str, Any], topic: str, group: str | None = None
) -> Iterator[Letters]:
    """
    Provide a reader of a topic of dead letters.

    Raises:
        CommandError: the topic does not exist.
        KafkaError: the broker does not answer.
    """
    existing(base, [topic])
    letters = Letters(base, topic, group)
    try:
        yield letters
    finally:
        letters.consumer.close(autocommit=False)


def found(record: Any) -> Found:  # noqa: ANN401 - upstream's record
    """Read a record."""
    try:
        return Found(record=record, letter=letter_of(record))
    except NotALetterError as error:
        return Found(record=record, letter=None, why=str(error))


def moment_of(text: str) -> float:
    """
    Return a moment in seconds: ``2h`` is two hours ago; else a date and time in UTC.

    Raises:
        ValueError: it is neither; the message says how to write a time.
    """
    try:
        return time.time() - seconds_of(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        message = (
            f"{text[:30]!r} is not a time: write 2026-11-22T07:30 (UTC), or 90m for 90 "
            "minutes ago"
        )
        raise ValueError(message) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


# ------------------------------------------------------------ shown


def rows(several: Sequence[Found]) -> list[tuple[str, ...]]:
    """Return a table of records with its head."""
    return [_HEAD, *map(_row, several)] if several else []


def _when(milliseconds: int) -> str:
    return utc(milliseconds / 1000) if milliseconds >= 0 else "time unknown"


def _row(one: Found) -> tuple[str, ...]:
    record, letter = one.record, one.letter
    place, at = one.place, _when(record.timestamp)
    if letter is None:
        return place, at, "-", "no letter", "-", "-", one.why
    lines = (letter.message or "").split("\n")
    message = lines[0] if len(lines) == 1 else f"{lines[0]}..."
    return (
        place,
        at,
        letter.place,
        letter.exception or "-",
        "-" if letter.attempts is None else str(letter.attempts),
        letter.group or "-",
        message if len(message) <= _MESSAGE else f"{message[: _MESSAGE - 3]}...",
    )


def document(one: Found) -> dict[str, Any]:
    """Return a record as plain JSON values."""
    record, letter = one.record, one.letter
    value = record.value if letter is None else letter.value
    headers = record.headers or () if letter is None else letter.headers
    told: dict[str, Any] = {
        "letter": one.place,
        "written": record.timestamp,
        "is_letter": letter is not None,
        "why": one.why or None,
    }
    if letter is not None:
        told |= {
            "from": letter.place,
            "timestamp": letter.timestamp,
            "group": letter.group,
            "attempts": letter.attempts,
            "exception": letter.exception,
            "message": letter.message,
            "stack": letter.stack,
            "null_headers": letter.null_headers or None,
        }
    return told | {
        "headers": [{"name": name, **(_plain(data) or {})} for name, data in headers],
        "key": _plain(record.key),
        "value": _plain(value),
    }


def _plain(data: bytes | None) -> dict[str, str] | None:
    if data is None:
        return None
    text = _text(data)
    return {"hex": data.hex()} if text is None else {"text": text}


def lines(one: Found) -> Iterator[str]:
    """Yield the lines about a whole record, for people; they say what a document does."""
    for name, value in document(one).items():
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
    if "hex" in data:
        return f"hex {data['hex']}"
    return data.get("text", "null")


def _field(name: str, text: str) -> Iterator[str]:
    if "\n" not in text:
        yield f"{name:<10} {text}"
        return
    yield name
    yield from (f"    {line}" for line in text.split("\n"))


def _text(data: bytes) -> str | None:
    # It is text only if encoding it gives the same bytes.
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    plain = text.replace("\n", "").replace("\t", "")
    return text if plain.isprintable() else None
