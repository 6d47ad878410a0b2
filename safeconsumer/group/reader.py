"""Reads the control topics on a thread that starts again after every failure."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import kafka.errors as kafka_errors
from attrs import frozen
from kafka import KafkaConsumer, TopicPartition

from safeconsumer._kafka.control_reader import ControlReader, EndOffsets, topic_ids
from safeconsumer.consumer import SafeConsumer
from safeconsumer.errors import ControlTopicError
from safeconsumer.group import clients, whole
from safeconsumer.group import events as control_events
from safeconsumer.group.barrier import Barrier, Offsets
from safeconsumer.group.settings import Control
from safeconsumer.group.state import ControlState
from safeconsumer.group.topic_check import TopicCheck
from safeconsumer.holds.ledger import PauseLedger

log = logging.getLogger("safeconsumer.group")

# Milliseconds; a poll ends at the first record, so this only limits how late timers
# are.
_POLL_MS = 500
# The same while a gate waits: a topic may end with records that were compacted away,
# for which poll() does not return.
_EAGER_POLL_MS = 20
_ASK_TIMEOUT_MS = 5_000
# The broker answers an idle fetch every fetch_max_wait_ms.
_SILENCE = 5.0
_BACKOFF = (0.1, 0.2, 0.5, 1.0, 2.0)
_CLOSE_MS = 500
# Seconds for the thread to end, if the caller gives no time.
_END_SECONDS = 2.0


@frozen(kw_only=True)
class _Session:
    consumer: SafeConsumer
    client: ControlReader
    asker: KafkaConsumer
    began: float


class Reader:
    """
    Applies the control topics' records, and opens the barrier up to where it has read.

    It keeps what it knows through every failure: an unreachable broker, a topic that is
    gone, refused or created again, a defect of this package.

    Thread rules: it has one thread; the public methods may be called on any.
    """

    def __init__(
        self,
        settings: Control,
        base: Mapping[str, Any],
        ledger: PauseLedger,
        state: ControlState,
        barrier: Barrier,
    ) -> None:
        self._settings = settings
        self._base = base
        self._ledger = ledger
        self._state = state
        self._barrier = barrier
        self._topics = TopicCheck(settings, base, ledger)
        self._partitions = tuple(TopicPartition(name, 0) for name in settings.topics)
        self._positions: dict[TopicPartition, int] = {}
        self._identities: dict[str, object] = {}
        self._stopping = threading.Event()
        self._checked = threading.Event()
        self._refused: ControlTopicError | None = None
        self._is_ready = False
        self._is_told = False
        self._failures = 0
        self._spoilt: Exception | None = None
        self._client: ControlReader | None = None
        self.on_change: Callable[[], object] = _nothing
        self._thread = threading.Thread(
            target=self._run, name="safeconsumer-control", daemon=True
        )

    def start(self, timeout: float) -> None:
        """
        Begin to read; wait at most so many seconds until the topics are checked.

        Raises:
            ControlTopicError: a topic is unfit; no thread is left running.
        """
        self._thread.start()
        self._checked.wait(timeout)
        if self._refused is not None:
            self.stop()
            raise self._refused

    def stop(self, until: float | None = None) -> None:
        """
        End the thread, and wait for it until then, on the monotonic clock.

        Without ``until`` it waits for two seconds at most.
        """
        if until is None:
            until = time.monotonic() + _END_SECONDS
        self._stopping.set()
        self._barrier.disconnect()
        if self._client is not None:
            self._client.wake()
        if self._thread is not threading.current_thread():
            self._thread.join(max(0.0, until - time.monotonic()))
        self._topics.stop(until)

    @property
    def is_ready(self) -> bool:
        """Whether everything on the topics is applied, as far as can be found out."""
        return self._is_ready

    def positions(self) -> Offsets:
        """Return the offsets below which everything is obeyed."""
        return dict(self._positions)

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._read_or_lose()
            except BaseException:
                log.exception("a hook wanted to end the reader of the control topics")
                self._stopping.wait(_BACKOFF[0])

    def _read_or_lose(self) -> None:
        try:
            self._read_until_stopped()
        except ControlTopicError as error:
            self._refused = error  # before _lose() lets start() go on
            self._lose(str(error))
        except BaseException as error:  # noqa: BLE001 - without the reader no hold would arrive
            self._lose(f"{type(error).__name__}: {error}")
        if not self._stopping.is_set():
            self._wait()

    def _wait(self) -> None:
        # It waits in short steps, because gates may have to open meanwhile.
        wait = _BACKOFF[min(self._failures, len(_BACKOFF) - 1)]
        self._failures += 1
        self._stopping.wait(wait)
        self._barrier.run_out()
        self._ledger.deliver()

    def _lose(self, reason: str) -> None:
        self._barrier.disconnect()
        self._is_ready = False
        self._checked.set()  # start() must not wait for a check that may never come
        if not self._is_told and not self._stopping.is_set():
            self._is_told = True
            self._ledger.emit(control_events.ControlUnavailable, reason=reason)
        log.debug("control topics cannot be read: %s", reason)
        self._ledger.deliver()
        self.on_change()

    def _read_until_stopped(self) -> None:
        began = time.monotonic()
        self._check()
        with ExitStack() as closing:
            asker = clients.asker(self._base)
            closing.callback(asker.close, autocommit=False, timeout_ms=_CLOSE_MS)
            consumer = clients.reader(self._base)
            closing.callback(consumer.close, autocommit=False, timeout_ms=_CLOSE_MS)
            closing.callback(self._barrier.disconnect)
            self._client = ControlReader(consumer)
            self._work(
                _Session(
                    consumer=consumer, client=self._client, asker=asker, began=began
                )
            )

    def _work(self, session: _Session) -> None:
        self._begin(session)
        while not self._stopping.is_set():
            self._turn(session)

    def _turn(self, session: _Session) -> None:
        eager = self._barrier.is_waiting() or not self._is_ready
        polled = session.consumer.poll(_EAGER_POLL_MS if eager else _POLL_MS)
        self._refuse_others(session)
        for tp, records in polled.items():
            self._state.absorb(tp.topic, map(whole.written, records))
        positions = session.client.positions()
        if positions != self._positions:
            self._positions.update(positions)
            for tp, offset in positions.items():
                self._state.read_through(tp.topic, offset)
            self._barrier.applied(self._positions)
            self.on_change()
        self._barrier.ask_again()
        self._barrier.run_out()
        self._topics.now_and_then(self._found_unfit)
        self._ledger.deliver()
        if self._spoilt is not None:
            raise self._spoilt
        if session.client.silence() > _SILENCE:
            message = f"no answer to a fetch for {_SILENCE:.0f} s"
            raise kafka_errors.KafkaTimeoutError(message)

    # ------------------------------------------------------------ beginning

    def _check(self) -> None:
        self._topics.at_once()
        self._refused = None
        self._checked.set()

    def _found_unfit(self, error: ControlTopicError) -> None:
        self._spoilt = error
        if self._client is not None:
            self._client.wake()

    def _begin(self, session: _Session) -> None:
        session.asker.assign(self._partitions)
        session.consumer.assign(self._partitions)
        firsts = self._offsets(session.asker.beginning_offsets)
        ends = self._offsets(session.asker.end_offsets)
        identities = topic_ids(session.asker, self._settings.topics)
        for tp in self._partitions:
            applied = self._positions.get(tp, 0)
            if self._was_reset(tp, identities[tp.topic], applied, ends[tp]):
                self._tell_reset(tp, applied, ends[tp])
                applied = 0
            self._positions[tp] = max(applied, firsts[tp])
            session.consumer.seek(tp, self._positions[tp])
        self._identities.update(
            {name: one for name, one in identities.items() if one is not None}
        )
        self._spoilt = None
        self._barrier.connect(
            lambda answer: self._ask(session, answer), self._positions
        )
        self._catch_up(session, ends)

    def _catch_up(self, session: _Session, ends: Offsets) -> None:
        self._is_ready = False
        while not self._stopping.is_set():
            if all(self._positions[tp] >= end for tp, end in ends.items()):
                break
            self._turn(session)
        self._is_ready, self._is_told, self._failures = True, False, 0
        self._ledger.emit(
            control_events.ControlReady,
            topics=self._settings.topics,
            holds=self._state.count(),
            seconds=round(time.monotonic() - session.began, 3),
        )
        self._ledger.deliver()
        self.on_change()

    def _refuse_others(self, session: _Session) -> None:
        # A topic that was created again is fetched from the old one's offset, as soon
        # as the client has learnt its new id: those records do not follow the earlier
        # ones.
        for name, identity in topic_ids(
            session.consumer, self._settings.topics
        ).items():
            if self._is_another(name, identity):
                message = f"{name} was made again"
                raise kafka_errors.UnknownTopicOrPartitionError(message)

    def _is_another(self, name: str, identity: object) -> bool:
        known = self._identities.get(name)
        return None not in (known, identity) and known != identity

    def _was_reset(
        self, tp: TopicPartition, identity: object, applied: int, end: int
    ) -> bool:
        return self._is_another(tp.topic, identity) or end < applied

    def _tell_reset(self, tp: TopicPartition, applied: int, end: int) -> None:
        self._state.begin_again(tp.topic)
        self._ledger.emit(
            control_events.ControlTopicReset, topic=tp.topic, applied=applied, end=end
        )

    def _offsets(
        self, ask: Callable[..., Mapping[TopicPartition, int]]
    ) -> Mapping[TopicPartition, int]:
        return ask(self._partitions, timeout_ms=_ASK_TIMEOUT_MS)

    def _ask(
        self, session: _Session, answer: Callable[[Offsets | None], object]
    ) -> None:
        try:
            EndOffsets(session.asker).ask(self._partitions, _ASK_TIMEOUT_MS, answer)
        except Exception as error:  # noqa: BLE001 - an assignment must not fail by it
            self._spoilt = error  # that client is broken; the next one asks again
            answer(None)


def _nothing() -> None:
    """Do nothing; stands in until a function is set."""
