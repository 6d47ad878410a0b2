"""Sends dead letters back to the topics that they came from, at least once."""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import kafka.errors as kafka_errors
from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from safeconsumer._kafka.of_group.producers import PatientClient, UntracedProducer
from safeconsumer._waits import InterruptibleEvent
from safeconsumer.cli.errors import CommandError
from safeconsumer.cli.letters import Marks
from safeconsumer.cli.records import StoppedError
from safeconsumer.worker.letters_format import REPLAYED_FROM, Letter

# The number of letters after which offsets are committed.
_WINDOW = 100
_FLUSH_SECONDS = 60.0
_MOST_BYTES = 64 << 20
_REPORT_INTERVAL = 2.0
# The prefix of internal topics of Kafka and of this package. A letter must not be able
# to make a replay write offsets or holds.
_INTERNAL = "__"
# Errors that would occur again in every later attempt to send the same letter.
_FINAL = (
    kafka_errors.InvalidRecordError,
    kafka_errors.MessageSizeTooLargeError,
    kafka_errors.RecordListTooLargeError,
)


class Replay:
    """
    Sends letters back in batches, and commits offsets after each batch.

    A committed offset is never past an unsent letter, except for letters that cannot be
    sent and were reported.

    Args:
        partitions: returns a topic's partitions; None if the topic does not exist.
        report: called with lines about unsendable letters and about progress.

    Attributes:
        selected: the number of letters selected so far.
        sent: the number of letters that were sent back to their topics and acknowledged.
        left: the number of letters that cannot be sent back.
        stopping: set this event to end the replay before its next letter.
        is_cut: whether ``stopping`` ended the replay before the last record.
    """

    def __init__(
        self,
        partitions: Callable[[str], frozenset[int] | None],
        report: Callable[[str], None],
    ) -> None:
        self._partitions = partitions
        self._report = report
        self._pending: list[tuple[Letter, Any]] = []
        # The offsets to commit when every pending letter is acknowledged.
        self._passed: Marks = {}
        self._reported_at = time.monotonic()
        self.selected = self.sent = self.left = 0
        self.stopping = InterruptibleEvent()
        self.is_cut = False

    def sendable(self, pieces: Iterable[list[Letter]]) -> Iterator[Letter]:
        """Yield the letters that can be sent back, and report the others."""
        with contextlib.suppress(StoppedError):
            for letter in chain.from_iterable(pieces):
                if self.stopping.is_set():
                    break
                self.selected += 1
                if why := self._obstacle(letter):
                    self._report_unsendable(letter, why)
                    self._pass(letter)
                else:
                    yield letter
            else:
                return
        self.is_cut = True

    def run(
        self,
        pieces: Iterable[list[Letter]],
        producer: Any,  # noqa: ANN401 - upstream has no types
        commit: Callable[[Marks | None], None],
    ) -> None:
        """
        Send letters back.

        Args:
            pieces: the letters to send, several at a time.
            producer: an idempotent producer with ``acks="all"``; see
                :func:`producer_of`.
            commit: commits offsets; called with None to commit the current positions.

        Raises:
            CommandError: the group has members, or the letters cannot be read.
            KafkaError: the broker refuses a letter or a commit, or does not answer. The
                next run sends letters again whose offsets are not committed.
        """
        commit(None)  # if the broker refuses this commit, nothing is sent
        try:
            for letter in self.sendable(pieces):
                self._send(letter, producer)
                if len(self._pending) >= _WINDOW:
                    self._settle(commit)
        except (kafka_errors.KafkaError, CommandError):
            if self._pending:  # nothing is pending if _settle() itself failed
                self._settle(commit)
            raise
        self._settle(commit)

    def target(self, letter: Letter) -> int | None:
        """Return the letter's old partition; None if it is gone, so that the key decides."""
        there = self._partitions(letter.topic) or ()
        return letter.partition if letter.partition in there else None

    def _obstacle(self, letter: Letter) -> str:
        # Returns why the letter cannot be sent back; "" if it can.
        if letter.why:
            return f"not a letter: {letter.why}"
        if letter.topic == letter.record.topic:
            return "its topic is this one"
        if letter.topic.startswith(_INTERNAL):
            return f"its topic {letter.topic} is internal"
        if self._partitions(letter.topic) is None:
            return f"its topic {letter.topic} does not exist"
        return _null_field(letter)

    def _report_unsendable(self, letter: Letter, why: str) -> None:
        self.left += 1
        self._report(f"left {letter.name}: {why}")

    def _pass(self, letter: Letter) -> None:
        self._passed[_tp(letter)] = _mark(letter, letter.record.offset + 1)

    def _send(self, letter: Letter, producer: Any) -> None:  # noqa: ANN401 - upstream has no types
        headers = [one for one in letter.headers if one[0] != REPLAYED_FROM]
        headers.append((REPLAYED_FROM, letter.name.encode()))
        try:
            future = producer.send(
                letter.topic,
                key=letter.key,
                value=letter.value,
                headers=headers,
                partition=self.target(letter),
            )
        except (*_FINAL, TypeError, ValueError) as error:
            self._report_unsendable(letter, str(error))
        else:
            self._pending.append((letter, future))
        self._pass(letter)

    def _settle(self, commit: Callable[[Marks | None], None]) -> None:
        # Waits for the answers to the pending letters, and commits as far as they
        # allow.
        failed: kafka_errors.KafkaError | None = None
        first: Marks = {}
        for letter, future in self._pending:
            try:
                future.get(timeout=_FLUSH_SECONDS)
                self.sent += 1
            except _FINAL as error:
                self._report_unsendable(letter, str(error))
            except kafka_errors.KafkaError as error:
                failed = failed or error
                first.setdefault(_tp(letter), _mark(letter, letter.record.offset))
        self._report_progress()
        self._pending.clear()
        if failed is None:
            commit(dict(self._passed))
            return
        with contextlib.suppress(kafka_errors.KafkaError, CommandError):
            commit(self._passed | first)
        raise failed

    def _report_progress(self) -> None:
        now = time.monotonic()
        if self._pending and now - self._reported_at >= _REPORT_INTERVAL:
            self._reported_at = now
            last = self._pending[-1][0].name
            self._report(f"{self.sent} sent back, the last one {last}")


def _null_field(letter: Letter) -> str:
    null = [name for name, value in letter.headers if value is None]
    if names := letter.null_headers or ",".join(null):
        return f"its headers {names} were null, which kafka-python cannot write"
    if letter.key is None and letter.value is None:
        return "its key and value are null, which kafka-python cannot write"
    return ""


def _tp(letter: Letter) -> TopicPartition:
    return TopicPartition(letter.record.topic, letter.record.partition)


def _mark(letter: Letter, offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, "", letter.record.leader_epoch)


def producer_of(base: Mapping[str, Any]) -> Any:  # noqa: ANN401 - upstream has no types
    """Return a producer that writes each letter once or raises if the result is unknown."""
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
