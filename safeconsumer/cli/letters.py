"""Reads a topic of dead letters, selects letters, and shows what is in them."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import kafka.errors as kafka_errors
from attrs import frozen
from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from safeconsumer.cli import records
from safeconsumer.cli.cluster import existing
from safeconsumer.cli.errors import CommandError
from safeconsumer.consumer import SafeConsumer
from safeconsumer.group import clients
from safeconsumer.holds.explain import utc
from safeconsumer.worker.letters_format import Letter, letter_of

HEAD = ("letter", "written", "from", "error", "attempts", "group", "message")
_MESSAGE = 60
# Letters that one poll returns, and so what is in memory beside what was fetched.
_MOST = 500
_ANSWER_MS = 10_000

Marks = dict[TopicPartition, OffsetAndMetadata]


@frozen(kw_only=True)
class Wanted:
    """
    Selects letters; by default all of a topic.

    Attributes:
        origins: topics, partitions or offsets where they failed; empty for any.
        errors: classes of exceptions, with or without module; empty for any.
        since: written at or after this moment, in seconds since the epoch.
    """

    origins: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    since: float | None = None

    def takes(self, letter: Letter) -> bool:
        """
        Tell whether a record is selected.

        One that is not a letter has no origin or error.
        """
        if self.since is not None and letter.record.timestamp / 1000 < self.since:
            return False
        if letter.why:
            return not (self.origins or self.errors)
        places = {letter.topic, f"{letter.topic}:{letter.partition}", letter.place}
        if self.origins and places.isdisjoint(self.origins):
            return False
        error = letter.exception or ""
        return not self.errors or any(
            error == one or error.endswith(f".{one}") for one in self.errors
        )


class Letters:
    """
    Reads a topic of dead letters up to its present end.

    Args:
        consumer: a SafeConsumer that begins at its group's committed offsets, or else
            at the first record; see :func:`opened`.
        tps: the partitions to read.
        offset: the only offset to read; None for all.

    Attributes:
        passed: how many offsets lie before the first one to be read.

    Raises:
        KafkaError: the broker does not answer, or refuses.
    """

    def __init__(
        self,
        consumer: SafeConsumer,
        tps: list[TopicPartition],
        offset: int | None = None,
    ) -> None:
        self._consumer = consumer
        self.passed = 0
        consumer.assign(tps)
        begins = consumer.beginning_offsets(tps) if tps else {}
        self._ends = consumer.end_offsets(tps) if tps else {}
        for tp in tps:
            if offset is not None:
                consumer.seek(tp, offset)
                self._ends[tp] = min(self._ends[tp], offset + 1)
                continue
            position = consumer.position(tp, timeout_ms=_ANSWER_MS)
            if position is None:
                message = f"no answer about the committed offset of {tp.topic}"
                raise kafka_errors.KafkaTimeoutError(message)
            if begins[tp] <= position <= self._ends[tp]:
                self.passed += position - begins[tp]
            else:  # as a consumer does with auto_offset_reset="earliest"
                consumer.seek_to_beginning(tp)

    def read(
        self, is_over: Callable[[], bool] = lambda: False
    ) -> Iterator[list[Letter]]:
        """
        Yield all records, several at a time, each partition in its order.

        Raises:
            StoppedError: ``is_over`` returned True, also while no broker answers.
            CommandError: the broker stopped answering.
            KafkaError: the topic cannot be read.
        """
        for _, several in records.read(self._consumer, self._ends, is_over):
            yield [letter_of(one) for one in several]

    def commit(self, marks: Marks | None) -> None:
        """
        Commit offsets for the group; None: the positions where reading stands.

        Raises:
            CommandError: the group has members.
            KafkaError: the broker refuses, or does not answer.
        """
        try:
            self._consumer.commit(marks, timeout_ms=_ANSWER_MS)
        except kafka_errors.CommitFailedError as error:
            message = "the group that replays has members, which commit, too: end them"
            raise CommandError(message) from error


@contextmanager
def opened(
    base: Mapping[str, Any],
    topic: str,
    *,
    group: str | None = None,
    at: tuple[int, int] | None = None,
) -> Iterator[Letters]:
    """
    Provide a reader of a topic of dead letters.

    Args:
        base: kafka-python's configuration.
        topic: of dead letters.
        group: the group behind whose committed offsets reading begins; without one it
            begins at the first letter.
        at: partition and offset of the only letter to read; None for all.

    Raises:
        CommandError: the topic does not exist.
        KafkaError: the broker does not answer.
    """
    numbers = sorted(existing(base, [topic])[topic])
    tps = [TopicPartition(topic, one) for one in numbers if not at or one == at[0]]
    settings = {
        "auto_offset_reset": "earliest",
        "group_id": group,
        "isolation_level": "read_committed",
        "max_poll_records": _MOST,
    }
    consumer = clients.reader({**base, **settings})
    try:
        yield Letters(consumer, tps, at and at[1])
    finally:
        consumer.close(autocommit=False)


def selected(
    pieces: Iterable[list[Letter]], wanted: Wanted, most: int | None
) -> Iterator[list[Letter]]:
    """Yield the selected records as they come, at most so many; None for no limit."""
    left = most
    for piece in pieces:
        found = [one for one in piece if wanted.takes(one)][:left]
        if found:
            yield found
        if left is not None:
            left -= len(found)
            if not left:
                return


# ------------------------------------------------------------ shown


def _when(milliseconds: int) -> str:
    return utc(milliseconds / 1000) if milliseconds >= 0 else "time unknown"


def row(letter: Letter) -> tuple[str, ...]:
    """Return a record as a row of the table whose head is :data:`HEAD`."""
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
    told: dict[str, Any] = {
        "letter": letter.name,
        "written": letter.record.timestamp,
        "is_letter": not letter.why,
        "why": letter.why or None,
    }
    if not letter.why:
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
    """Yield the lines about a whole record, for people; they say what a document does."""
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
    # Only a text is ever in quotes, so that no two values look the same.
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
    # It is text only if encoding it gives the same bytes.
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    plain = text.replace("\n", "").replace("\t", "")
    return text if plain.isprintable() else None
