"""Sends dead letters back to the topics that they come from, at least once."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import kafka.errors as kafka_errors
from attrs import frozen
from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from safeconsumer._kafka.of_group.producers import PatientClient, UntracedProducer
from safeconsumer._waits import InterruptibleEvent
from safeconsumer.cli.errors import CommandError
from safeconsumer.cli.letters import Found, Letters, Wanted
from safeconsumer.cli.records import StoppedError
from safeconsumer.worker.letters_format import REPLAYED_FROM, StoredLetter

# Letters that are sent together, and then committed together.
_WINDOW = 100
_FLUSH_SECONDS = 60.0
_COMMIT_MS = 10_000
_MOST_BYTES = 64 << 20
_TELL_EVERY = 2.0
# A letter must not make us write offsets or operators' holds.
_INTERNAL = "__"
# Errors that concern one letter, at any time.
_FINAL = (
    kafka_errors.InvalidRecordError,
    kafka_errors.MessageSizeTooLargeError,
    kafka_errors.RecordListTooLargeError,
)

Partitions = Callable[[str], frozenset[int] | None]


@frozen(kw_only=True)
class Letter:
    """
    A letter, and its target.

    Attributes:
        found: the record of the letter.
        stored: the content of the letter.
        partition: a partition of its topic; None: chosen by its key.
    """

    found: Found
    stored: StoredLetter
    partition: int | None

    @property
    def target(self) -> str:
        """Its target, such as ``orders:3``."""
        where = "by its key" if self.partition is None else self.partition
        return f"{self.stored.topic}:{where}"


class Replay:
    """
    Sends letters back, window by window, and commits behind each window.

    The group's offset in a partition is never behind a letter that was not sent, unless
    that letter is not selected, or cannot be sent and was reported.

    Args:
        there: the topic of dead letters, read with the group that commits; without one
            nothing is committed.
        wanted: which letters are sent.
        producer: idempotent, with ``acks="all"``; see :func:`producer_of`. None for a
            replay that only shows what it would send.
        partitions: returns a topic's partitions; None if it does not exist.
        say: takes a line about a letter that is left, or about the progress.
        most: the most letters; None for no limit.
        is_again: whether to begin at the first letter, and not at the group's offsets.

    Attributes:
        before: records that the group had passed when the replay began.
        selected: letters selected so far.
        sent: those of them sent back to their topics, and acknowledged.
        left: those of them that cannot be sent back.
        stopping: if it is set, the replay ends before its next letter.
        is_cut: whether that has ended it before the last record.
    """

    def __init__(  # noqa: PLR0913 - one keyword per choice
        self,
        there: Letters,
        wanted: Wanted,
        producer: Any,  # noqa: ANN401 - upstream has no types
        partitions: Partitions,
        say: Callable[[str], None],
        *,
        most: int | None = None,
        is_again: bool = False,
    ) -> None:
        self._there = there
        self._wanted = wanted
        self._producer = producer
        self._partitions = partitions
        self._say = say
        self._most = most
        self._posted: list[tuple[Found, Any]] = []
        # The leader epochs of what was passed, for the commits.
        self._epochs: dict[TopicPartition, int] = {}
        # What the group's offsets will be once all that was posted is acknowledged.
        self._passed = {
            tp: begin if is_again else self._start(tp)
            for tp, begin in there.begins.items()
        }
        self._told_at = time.monotonic()
        self.before = sum(at - there.begins[tp] for tp, at in self._passed.items())
        self.selected = self.sent = self.left = 0
        self.stopping = InterruptibleEvent()
        self.is_cut = False

    def _start(self, tp: TopicPartition) -> int:
        begin, end = self._there.begins[tp], self._there.ends[tp]
        if self._there.group is None:
            return begin
        committed = self._there.consumer.committed(
            tp, metadata=True, timeout_ms=_COMMIT_MS
        )
        # Out of range, as a consumer does with auto_offset_reset="earliest".
        if committed is None or not begin <= committed.offset <= end:
            return begin
        self._epochs[tp] = committed.leader_epoch
        return int(committed.offset)

    def chosen(self) -> Iterator[Letter]:
        """Yield the letters to send back; pass over the others, and report the left ones."""
        for found in self._records():
            if self.stopping.is_set():
                self.is_cut = True
                return
            if not self._wanted.takes(found):
                self._pass(found)
                continue
            self.selected += 1
            letter = self._letter(found)
            if isinstance(letter, str):
                self._leave(found, letter)
                self._pass(found)
            else:
                yield letter
            if self.selected == self._most:
                return

    def _records(self) -> Iterator[Found]:
        begins, is_over = dict(self._passed), self.stopping.is_set
        try:
            yield from self._there.each(self._wanted, begins, is_over)
        except StoppedError:
            self.is_cut = True

    def run(self) -> None:
        """
        Send the letters back.

        Raises:
            CommandError: the group has members.
            KafkaError: the broker refuses, or does not answer; the next run sends again
                what was not committed.
        """
        self._commit(self._passed)  # where that is refused nothing is sent
        for letter in self.chosen():
            self._post(letter)
            if len(self._posted) >= _WINDOW:
                self._settle()
        self._settle()

    def _letter(self, found: Found) -> Letter | str:
        stored = found.letter
        if stored is None:
            return f"not a letter: {found.why}"
        if stored.topic == found.record.topic:
            return "its topic is this one"
        if stored.topic.startswith(_INTERNAL):
            return f"its topic {stored.topic} is internal"
        partitions = self._partitions(stored.topic)
        if partitions is None:
            return f"its topic {stored.topic} does not exist"
        if null := _null_in(stored):
            return f"its {null}, which kafka-python cannot write"
        is_there = stored.partition in partitions
        return Letter(
            found=found,
            stored=stored,
            partition=stored.partition if is_there else None,
        )

    def _leave(self, found: Found, why: str) -> None:
        self.left += 1
        self._say(f"left {found.place}: {why}")

    def _pass(self, found: Found) -> None:
        self._passed[found.tp] = found.record.offset + 1
        self._epochs[found.tp] = found.record.leader_epoch

    def _post(self, letter: Letter) -> None:
        stored = letter.stored
        headers = [one for one in stored.headers if one[0] != REPLAYED_FROM]
        headers.append((REPLAYED_FROM, letter.found.place.encode()))
        try:
            future = self._producer.send(
                stored.topic,
                key=stored.key,
                value=stored.value,
                headers=headers,
                partition=letter.partition,
            )
        except (*_FINAL, TypeError, ValueError) as error:
            self._leave(letter.found, str(error))
        except kafka_errors.KafkaError:
            self._settle()
            raise
        else:
            self._posted.append((letter.found, future))
        self._pass(letter.found)

    def _settle(self) -> None:
        # Waits for the answers about all that was posted, and commits what they allow.
        failed: kafka_errors.KafkaError | None = None
        passed = dict(self._passed)
        for found, future in self._posted:
            try:
                future.get(timeout=_FLUSH_SECONDS)
                self.sent += 1
            except _FINAL as error:
                self._leave(found, str(error))
            except kafka_errors.KafkaError as error:
                failed = failed or error
                tp = found.tp
                passed[tp] = min(passed[tp], found.record.offset)
        self._tell()
        self._posted.clear()
        if failed is None:
            self._commit(passed)
            return
        with contextlib.suppress(kafka_errors.KafkaError, CommandError):
            self._commit(passed)
        raise failed

    def _commit(self, passed: Mapping[TopicPartition, int]) -> None:
        if self._there.group is None:
            return
        marks = {
            tp: OffsetAndMetadata(at, "", self._epochs.get(tp, -1))
            for tp, at in passed.items()
        }
        try:
            self._there.consumer.commit(marks, timeout_ms=_COMMIT_MS)
        except kafka_errors.CommitFailedError as error:
            message = "the group that replays has members, which commit, too: end them"
            raise CommandError(message) from error

    def _tell(self) -> None:
        now = time.monotonic()
        if self._posted and now - self._told_at >= _TELL_EVERY:
            self._told_at = now
            last = self._posted[-1][0].place
            self._say(f"{self.sent} sent back, the last one {last}")


def _null_in(stored: StoredLetter) -> str:
    null = [name for name, value in stored.headers if value is None]
    if names := stored.null_headers or ",".join(null):
        return f"headers {names} were null"
    return (
        "key and value are null" if stored.key is None and stored.value is None else ""
    )


def producer_of(base: Mapping[str, Any]) -> Any:  # noqa: ANN401 - upstream has no types
    """Return a producer that writes each letter once, or reports that it is not known."""
    return UntracedProducer(
        **base,
        acks="all",
        enable_idempotence=True,
        max_request_size=_MOST_BYTES,
        kafka_client=PatientClient,
        delivery_timeout_ms=30_000,
        request_timeout_ms=10_000,
        max_block_ms=10_000,
    )
