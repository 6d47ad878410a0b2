"""Sends dead letters back to the topics that they come from."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import kafka.errors as kafka_errors
from attrs import define, frozen
from kafka import TopicPartition
from kafka.serializer import Serializer

from safeconsumer._kafka.fixes.producers import PatientClient, UntracedProducer
from safeconsumer.cli.letters import Found, opened
from safeconsumer.cli.replay_memory import Memory
from safeconsumer.group.troubles import is_refused
from safeconsumer.worker.letters_format import REPLAYED_FROM, StoredLetter

# Letters that are sent together, and remembered together.
_WINDOW = 100
_FLUSH_SECONDS = 60.0
_MOST_BYTES = 64 << 20
_TELL_EVERY = 2.0
# A letter must not make us write offsets or operators' holds.
_INTERNAL = "__"
# Milliseconds by which the clocks of the replaying host and of a broker may differ.
_CLOCK_MS = 60_000
# Errors that concern one letter, at any time.
_FINAL = (
    kafka_errors.InvalidRecordError,
    kafka_errors.MessageSizeTooLargeError,
    kafka_errors.RecordListTooLargeError,
)

Partitions = Callable[[str], frozenset[int] | None]


class NullValue(Serializer):  # type: ignore[misc]  # upstream has no types
    """
    Stands for the null value of a record without a key.

    kafka-python's producer (3.0.12) refuses a record with neither, though Kafka has
    them: it checks before it calls its serializer.
    """

    def serialize(self, _topic: str, _headers: object, data: object) -> bytes | None:
        """Return bytes unchanged, and null for this object."""
        return None if data is self else data  # type: ignore[return-value]  # bytes


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
    def at(self) -> tuple[TopicPartition, int]:
        """Its place in the topic of dead letters."""
        record = self.found.record
        return TopicPartition(record.topic, record.partition), record.offset

    @property
    def target(self) -> str:
        """Its target, such as ``orders:3``."""
        where = "by its key" if self.partition is None else self.partition
        return f"{self.stored.topic}:{where}"


@define
class Counts:
    """
    Counts of letters by result.

    Attributes:
        sent: letters sent back to their topics, and acknowledged.
        left: letters that cannot be sent back.
        before: letters sent back by an earlier replay.
    """

    sent: int = 0
    left: int = 0
    before: int = 0


class Replay:
    """
    Sends letters back, window by window, and remembers each window.

    Args:
        producer: idempotent, with ``acks="all"``; see :func:`producer_of`.
        memory: remembers earlier replays.
        partitions: returns a topic's partitions; None if it does not exist.
        arrived: returns whether a letter is in its target topic, since a moment in
            milliseconds.
        say: takes a line about a letter that is left, or about the progress.
        rate: letters per second; None for no limit.
        most: the most letters; None for no limit.
        is_again: whether to send letters again that were sent before.
        keeps_timestamp: whether to give records their old timestamps.

    Attributes:
        counts: the counts so far.
        stopping: if it is set, the replay ends before its next letter.
        is_cut: whether that has kept a letter from being sent.
    """

    def __init__(  # noqa: PLR0913 - one keyword per choice
        self,
        producer: Any,  # noqa: ANN401 - upstream has no types
        memory: Memory,
        partitions: Partitions,
        arrived: Callable[[StoredLetter, str, int], bool],
        say: Callable[[str], None],
        *,
        rate: float | None = None,
        most: int | None = None,
        is_again: bool = False,
        keeps_timestamp: bool = False,
    ) -> None:
        self._producer = producer
        self._memory = memory
        self._partitions = partitions
        self._arrived = arrived
        self._say = say
        self._rate = rate
        self._most = most
        self._is_again = is_again
        self._keeps_timestamp = keeps_timestamp
        # Places of letters that an earlier replay sent and could not remember.
        self._there: list[tuple[TopicPartition, int]] = []
        self._next_at = self._told_at = time.monotonic()
        self.counts = Counts()
        self.stopping = threading.Event()
        self.is_cut = False

    def chosen(self, several: Iterable[Found]) -> Iterator[Letter]:
        """
        Yield the letters that can be sent back, and were not.

        Report those that are left.
        """
        count = 0
        for found in several:
            if count == self._most:
                return
            if self.stopping.is_set():
                self.is_cut = True
                return
            if not self._is_again and self._was_sent(found):
                self.counts.before += 1
                continue
            letter = self._letter(found)
            if isinstance(letter, str):
                self._leave(found, letter)
            else:
                count += 1
                yield letter

    def run(self, several: Iterable[Found]) -> None:
        """
        Send the letters back.

        Raises:
            CommandError: it cannot be remembered any more what was sent.
            KafkaError: the broker refuses, or does not answer; letters that are not
                known to be written are remembered as doubtful.
        """
        window: list[Letter] = []
        size = _WINDOW if self._rate is None else max(1, min(_WINDOW, int(self._rate)))
        for letter in self.chosen(several):
            window.append(letter)
            if len(window) == size:
                self._send(window)
                window = []
        self._send(window)

    def _was_sent(self, found: Found) -> bool:
        record = found.record
        tp = TopicPartition(record.topic, record.partition)
        if self._memory.has(tp, record.offset):
            return True
        since = self._memory.doubtful_since(tp, record.offset)
        if since is None or found.letter is None:
            return False
        if self._partitions(found.letter.topic) is None:
            return False
        if not self._arrived(found.letter, found.place, since):
            return False
        self._there.append((tp, record.offset))
        return True

    def _letter(self, found: Found) -> Letter | str:
        stored, topic = found.letter, found.record.topic
        if stored is None:
            return f"not a letter: {found.why}"
        if stored.topic == topic:
            return "its topic is this one"
        if stored.topic.startswith(_INTERNAL):
            return f"its topic {stored.topic} is internal"
        partitions = self._partitions(stored.topic)
        if partitions is None:
            return f"its topic {stored.topic} does not exist"
        null = [name for name, value in stored.headers if value is None]
        if stored.null_headers or null:
            names = stored.null_headers or ",".join(null)
            return f"its headers {names} were null, which kafka-python cannot write"
        is_there = stored.partition in partitions
        return Letter(
            found=found,
            stored=stored,
            partition=stored.partition if is_there else None,
        )

    def _leave(self, found: Found, why: str) -> None:
        self.counts.left += 1
        self._say(f"left {found.place}: {why}")

    def _send(self, window: list[Letter]) -> None:
        self._memory.end(self._there, ())
        self._there.clear()
        if not window:
            return
        self._memory.begin((one.at for one in window), self._oldest(window))
        posted: list[tuple[Letter, Any]] = []
        unsent: list[Letter] = []
        failed: list[BaseException] = []
        for letter in window:
            if failed or not self._may_go_on():
                self.is_cut |= not failed
                unsent.append(letter)
                continue
            try:
                posted.append((letter, self._post(letter)))
            except (*_FINAL, TypeError, ValueError) as error:
                unsent.append(letter)
                self._leave(letter.found, str(error))
            except kafka_errors.KafkaError as error:
                unsent.append(letter)
                failed.append(error)
        self._conclude(posted, unsent, failed)
        if failed:
            raise failed[0]

    def _oldest(self, window: list[Letter]) -> int | None:
        # A record is looked up from this time on if its acknowledgement was lost.
        if not self._keeps_timestamp:
            return None
        times = (one.stored.timestamp for one in window)
        return min((one for one in times if one is not None), default=None)

    def _conclude(
        self,
        posted: list[tuple[Letter, Any]],
        unsent: list[Letter],
        failed: list[BaseException],
    ) -> None:
        sent: list[Letter] = []
        for letter, future in posted:
            try:
                future.get(timeout=_FLUSH_SECONDS)
                sent.append(letter)
            except _FINAL as error:
                unsent.append(letter)
                self._leave(letter.found, str(error))
            except kafka_errors.KafkaError as error:
                failed.append(error)
                if is_refused(error):
                    unsent.append(letter)
        self._memory.end((one.at for one in sent), (one.at for one in unsent))
        self.counts.sent += len(sent)
        self._tell(posted)

    def _post(self, letter: Letter) -> Any:  # noqa: ANN401 - upstream's future
        stored = letter.stored
        headers = [one for one in stored.headers if one[0] != REPLAYED_FROM]
        headers.append((REPLAYED_FROM, letter.found.place.encode()))
        is_null = stored.key is None and stored.value is None
        return self._producer.send(
            stored.topic,
            key=stored.key,
            value=self._producer.config["value_serializer"]
            if is_null
            else stored.value,
            headers=headers,
            partition=letter.partition,
            timestamp_ms=stored.timestamp if self._keeps_timestamp else None,
        )

    def _may_go_on(self) -> bool:
        if self._rate is not None:
            now = time.monotonic()
            if self._next_at > now:
                self.stopping.wait(self._next_at - now)
            self._next_at = max(now, self._next_at) + 1 / self._rate
        return not self.stopping.is_set()

    def _tell(self, posted: list[tuple[Letter, Any]]) -> None:
        now = time.monotonic()
        if posted and now - self._told_at >= _TELL_EVERY:
            self._told_at = now
            last = posted[-1][0].found.place
            self._say(f"{self.counts.sent} sent back, the last one {last}")


def producer_of(base: Mapping[str, Any]) -> Any:  # noqa: ANN401 - upstream has no types
    """Return a producer that writes each letter once, or reports that it is not known."""
    return UntracedProducer(
        **base,
        acks="all",
        enable_idempotence=True,
        value_serializer=NullValue(),
        max_request_size=_MOST_BYTES,
        kafka_client=PatientClient,
        delivery_timeout_ms=30_000,
        request_timeout_ms=10_000,
        max_block_ms=10_000,
    )


class Arrivals:
    """
    Finds letters that a replay sent, but whose acknowledgement it did not live to get.

    It reads their target topics, from a minute before the replay began to send them, or
    before the oldest timestamp that it gave them, to their present end: also records
    behind the beginning of somebody's open transaction.
    """

    def __init__(self, base: Mapping[str, Any]) -> None:
        self._base = base
        self._seen: dict[tuple[str, int], frozenset[str]] = {}

    def has(self, letter: StoredLetter, place: str, since: int) -> bool:
        """
        Tell whether the letter from ``place`` has arrived.

        Raises:
            KafkaError: its topic cannot be read.
        """
        key = letter.topic, since
        if key not in self._seen:
            begin = max(0, since - _CLOCK_MS)
            self._seen[key] = frozenset(self._read(letter.topic, begin))
        return place in self._seen[key]

    def _read(self, topic: str, since: int) -> Iterator[str]:
        with opened(self._base, topic, isolation="read_uncommitted") as letters:
            for record in letters.records(since):
                for name, value in record.headers or ():
                    if name == REPLAYED_FROM:
                        yield (value or b"").decode("utf-8", "replace")
