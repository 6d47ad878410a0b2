"""Watches held partitions for lost data, which nobody would notice otherwise."""

import threading
from collections.abc import Collection, Mapping
from contextlib import ExitStack, suppress
from typing import Any

from attrs import frozen
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import UnknownTopicOrPartitionError

from safeconsumer._kafka.control_reader import topic_ids
from safeconsumer.errors import ClientPropertyError
from safeconsumer.group import clients, topics
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.spark import events
from safeconsumer.spark.logins import Connect, plain
from safeconsumer.spark.offsets import Offsets
from safeconsumer.spark.options import SourceOptions

_ASK_TIMEOUT_MS = 5_000
_CLOSE_MS = 500
_LEAST_AGE_MS = 500
# A record older than this share of its topic's retention may be deleted at any time:
# whole segments are deleted at once.
_NEARLY = 0.75
# If less than this share of the log is left before the frozen offset, it is warned of.
_LITTLE = 0.1


@frozen(kw_only=True)
class Seen:
    """
    The broker's facts about one held partition.

    Attributes:
        frozen: the offset to be read next.
        beginning: the first offset of its log.
        end: the end offset of its log.
        young: the first offset that has not used up most of its retention; None if
            every record has, or its retention is unlimited.
        is_limited: whether retention deletes from it at all.
        is_another: whether its topic was deleted and created again since it is held.
    """

    frozen: int
    beginning: int
    end: int
    young: int | None = None
    is_limited: bool = False
    is_another: bool = False

    def loss(self) -> str | None:
        """Describe why the next record is gone; None if it is there."""
        if self.is_another:
            return "its topic was deleted and made again"
        if self.beginning > self.frozen:
            return (
                f"retention deleted offsets {self.frozen} to {self.beginning - 1}, "
                "which were to be read next"
            )
        return None

    def warning(self) -> str | None:
        """Describe that retention is near; None if it is not."""
        if not self.is_limited or self.frozen >= self.end or self.loss():
            return None
        young = self.end if self.young is None else self.young
        if self.frozen < young:
            return (
                f"offset {self.frozen} is older than {_NEARLY:.0%} of its topic's "
                "retention.ms; resume, or raise it"
            )
        room = self.frozen - self.beginning
        if self.beginning > 0 and room < _LITTLE * (self.end - self.beginning):
            return (
                f"the log begins at {self.beginning} already, {room} offsets before "
                f"{self.frozen}; resume, or raise retention.bytes"
            )
        return None


class HeldWatch:
    """
    Checks from time to time at the broker where held partitions begin.

    Thread rules: it has one thread, while anything is held; the methods on any.

    Args:
        stream: the stream's name, for events.
        options: the stream's options.
        ledger: its hooks take the events.
        connect: converts properties of Java's clients to kafka-python's configuration.
    """

    def __init__(
        self,
        stream: str,
        options: SourceOptions,
        ledger: PauseLedger,
        connect: Connect = plain,
    ) -> None:
        self._connect = connect
        self._stream = stream
        self._options = options
        self._ledger = ledger
        self._frozen: Offsets = {}
        self._identities: dict[str, object] = {}
        self._losses: tuple[str, ...] = ()
        self._told: tuple[str, ...] = ()
        self._is_failing = False
        self._wake = threading.Event()
        self._looked = threading.Condition()
        self._judged: Offsets | None = None
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def look_at(self, frozen: Offsets) -> None:
        """Note the held partitions, each with the offset to be read next."""
        is_news = set(frozen) != set(self._frozen)
        self._frozen = dict(frozen)
        topics = {topic for topic, _ in frozen}
        for topic in tuple(self._identities):
            if topic not in topics:  # its hold has ended; a later one starts over
                self._identities.pop(topic, None)
        if not frozen:
            self._losses, self._told, self._judged = (), (), {}
        elif self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="safekafka-watch", daemon=True
            )
            self._thread.start()
        if is_news:
            self._wake.set()

    def await_look(self, timeout: float) -> None:
        """
        Wait until those that were noted last were checked, or the check failed.

        This is for runs that end by themselves, which would be over before the first
        check. It returns after so many seconds at the latest, and an event reports it.
        """
        with self._looked:
            is_over = self._looked.wait_for(
                lambda: self._judged == self._frozen or self._is_failing, timeout
            )
        if not is_over:
            self._tell_failure(f"the broker has not answered within {timeout:g} s")

    def losses(self) -> tuple[str, ...]:
        """Return one line per held partition whose next record is gone."""
        return self._losses

    def close(self) -> None:
        """End the thread; wait for it for two seconds at most."""
        self._is_closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(2.0)

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        while not self._is_closed:
            try:
                self._look_until_it_fails()
            except ClientPropertyError as error:
                self._tell_failure(str(error))
                return
            except Exception as error:  # noqa: BLE001 - watching must not end a stream
                self._tell_failure(f"{type(error).__name__}: {error}")
                self._wait()

    def _look_until_it_fails(self) -> None:
        found = self._connect(self._options.client)
        # A topic's identity is as old as the metadata that has it.
        age = max(_LEAST_AGE_MS, int(self._options.watch_interval * 1000))
        more = {"metadata_max_age_ms": age}
        base = clients.connection(found, more, "spark-watch")
        with ExitStack() as closing:
            asker = clients.reader(base)
            closing.callback(asker.close, autocommit=False, timeout_ms=_CLOSE_MS)
            admin = closing.enter_context(clients.admin(base))
            while not self._is_closed:
                frozen = self._frozen
                if frozen:
                    self._judge(frozen, self._ask(frozen, asker, admin))
                self._is_failing = False
                self._wait()

    def _wait(self) -> None:
        self._wake.wait(self._options.watch_interval)
        self._wake.clear()

    def _ask(
        self,
        frozen: Offsets,
        asker: KafkaConsumer,
        admin: Any,  # noqa: ANN401 - kafka-python is untyped
    ) -> dict[TopicPartition, Seen]:
        facts = {one.name: one for one in topics.ask(admin, {tp[0] for tp in frozen})}
        there = [
            TopicPartition(*tp) for tp in frozen if tp[1] < facts[tp[0]].partitions
        ]
        asker.assign(there)  # so that their metadata is fetched before the questions
        begin = asker.beginning_offsets(there, timeout_ms=_ASK_TIMEOUT_MS)
        end = asker.end_offsets(there, timeout_ms=_ASK_TIMEOUT_MS)
        limits = {tp: _retention_ms(facts[tp.topic].settings) for tp in there}
        _, wall = self._ledger.now()
        times = {
            tp: int(wall * 1000 - _NEARLY * limit)
            for tp, limit in limits.items()
            if limit is not None
        }
        young = asker.offsets_for_times(times, timeout_ms=_ASK_TIMEOUT_MS)
        ids = topic_ids(asker, sorted({tp.topic for tp in there}))
        found = {}
        for tp in there:
            first = young.get(tp)
            found[tp] = Seen(
                frozen=frozen[tp],
                beginning=begin[tp],
                end=end[tp],
                young=0 if tp not in times else first and first.offset,
                is_limited=_is_limited(facts[tp.topic].settings),
                is_another=self._is_another(tp.topic, ids[tp.topic]),
            )
        return found

    def _is_another(self, topic: str, identity: object | None) -> bool:
        if identity is None:  # not told in this look: what was told before counts
            return False
        return self._identities.setdefault(topic, identity) != identity

    def _judge(self, frozen: Offsets, seen: Mapping[TopicPartition, Seen]) -> None:
        losses, warnings = [], []
        for tp, one in sorted(seen.items()):
            loss, warning = one.loss(), one.warning()
            if loss is not None:
                losses.append(f"{tp[0]}:{tp[1]}: {loss}")
            if warning is not None:
                warnings.append(f"{tp[0]}:{tp[1]}: {warning}")
        if self._frozen != frozen:
            return  # holds have changed during the check
        self._losses = tuple(losses)
        with self._looked:
            self._judged = frozen
            self._looked.notify_all()
        if warnings and self._told != (told := tuple(warnings)):
            self._told = told
            self._emit(events.RetentionIsNear, warnings=told)

    def _tell_failure(self, reason: str) -> None:
        if not self._is_failing and not self._is_closed:
            with self._looked:
                self._is_failing = True
                self._looked.notify_all()
            self._emit(events.WatchFailed, reason=reason)

    def _emit(self, kind: Any, **fields: object) -> None:  # noqa: ANN401 - an event
        with suppress(Exception):
            self._ledger.emit(kind, stream=self._stream, **fields)
            self._ledger.deliver()


def gone(
    options: SourceOptions, names: Collection[str], connect: Connect = plain
) -> frozenset[str]:
    """
    Return those of some topics that do not exist; asks once, with a separate client.

    Raises:
        ClientPropertyError: a property of the clients cannot be converted.
        KafkaError: no broker answers.
    """
    base = clients.connection(connect(options.client), {}, "spark-watch")
    with clients.admin(base) as admin:
        return frozenset(
            one["name"]
            for one in admin.describe_topics(list(names))
            if one["error_code"] == UnknownTopicOrPartitionError.errno
        )


def _retention_ms(settings: Mapping[str, str] | None) -> int | None:
    settings = settings or {}
    limit = int(settings.get("retention.ms", "-1"))
    is_deleted = "delete" in settings.get("cleanup.policy", "delete")
    return limit if limit >= 0 and is_deleted else None


def _is_limited(settings: Mapping[str, str] | None) -> bool:
    by_size = int((settings or {}).get("retention.bytes", "-1")) >= 0
    is_deleted = "delete" in (settings or {}).get("cleanup.policy", "delete")
    return (by_size and is_deleted) or _retention_ms(settings) is not None
