"""Reads the holds topic on a thread of its own, and restarts after every failure."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

from safeconsumer._waits import InterruptibleEvent
from safeconsumer.errors.base import ControlTopicError
from safeconsumer.group.alarms import TopicAlarms
from safeconsumer.group.barrier import Barrier, Offsets
from safeconsumer.group.control_clients import HoldsTopic
from safeconsumer.group.settings import Control
from safeconsumer.group.state import ControlState
from safeconsumer.holds.ledger import PauseLedger

log = logging.getLogger("safeconsumer.group")

# Milliseconds; a poll returns as soon as a record arrives, so this only limits how late
# timed actions run.
_POLL_MS = 500
# The same while a gate is closed. It is short because poll() does not return at the end
# of the topic if compaction removed the last records.
_EAGER_POLL_MS = 20
_BACKOFF = (0.1, 0.2, 0.5, 1.0, 2.0)
# Seconds to wait for the thread to stop if the caller sets no limit.
_END_SECONDS = 2.0


class Reader:
    """
    Applies the records from the holds topic, and tells the barrier how far it has read.

    Holds stay in force through every failure: an unreachable broker, a topic that is
    deleted, forbidden or recreated, or a bug in this package.

    Thread rules: a reader has one thread; any thread may call the public methods.
    """

    def __init__(
        self,
        settings: Control,
        topic: HoldsTopic,
        ledger: PauseLedger,
        state: ControlState,
        barrier: Barrier,
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._ledger = ledger
        self._state = state
        self._barrier = barrier
        self._alarms = TopicAlarms(ledger, settings.holds_topic)
        self._checked_at = time.monotonic()
        self._check_thread: threading.Thread | None = None
        self._positions: Offsets = {}
        self._stopping = InterruptibleEvent()
        self._checked = InterruptibleEvent()
        self._refused: ControlTopicError | None = None
        self._failures = 0
        self._failure: Exception | None = None
        self.on_change: Callable[[], object] = lambda: None
        self._thread = threading.Thread(
            target=self._run, name="safeconsumer-control", daemon=True
        )

    def start(self, timeout: float) -> None:
        """
        Start to read; wait at most ``timeout`` seconds until the topic is checked.

        Raises:
            ControlTopicError: the topic is unfit; no thread keeps running.
        """
        self._thread.start()
        self._checked.wait(timeout)
        if self._refused is not None:
            self.stop()
            raise self._refused

    def ask_to_stop(self) -> None:
        """Tell the thread and the client to stop, without waiting or taking a lock."""
        self._stopping.set()

    def stop(self, until: float | None = None) -> None:
        """
        Stop the thread, and wait for it until a time on the monotonic clock.

        Without ``until``, the call waits for two seconds at most.
        """
        if until is None:
            until = time.monotonic() + _END_SECONDS
        self.ask_to_stop()
        self._barrier.disconnect()
        self._topic.wake()
        if self._thread is not threading.current_thread():
            self._thread.join(max(0.0, until - time.monotonic()))
        if self._check_thread is not None:
            self._check_thread.join(max(0.0, until - time.monotonic()))

    @property
    def is_ready(self) -> bool:
        """Whether all records on the topic were applied and no failure has followed."""
        return self._alarms.is_ready

    def positions(self) -> Offsets:
        """Return the offsets below which all records have been applied."""
        return dict(self._positions)

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._read_or_lose()
            except BaseException:
                log.exception("a hook tried to end the reader of the control topics")
                self._stopping.wait(_BACKOFF[0])

    def _read_or_lose(self) -> None:
        try:
            self._read_until_stopped()
        except ControlTopicError as error:
            self._refused = error  # must be set before _lose() wakes start()
            self._lose(str(error))
        except BaseException as error:  # noqa: BLE001 - without the reader no hold would arrive
            self._lose(f"{type(error).__name__}: {error}")
        if not self._stopping.is_set():
            self._wait()

    def _wait(self) -> None:
        # Wait only briefly, because gates may have to open between two waits.
        wait = _BACKOFF[min(self._failures, len(_BACKOFF) - 1)]
        self._failures += 1
        self._stopping.wait(wait)
        self._barrier.open_overdue()
        self._ledger.deliver()

    def _lose(self, reason: str) -> None:
        self._barrier.disconnect()
        self._checked.set()  # start() must not wait for a check that may never succeed
        if not self._stopping.is_set():
            self._alarms.lost(reason)
        log.debug("control topics cannot be read: %s", reason)
        self._ledger.deliver()
        self.on_change()

    def _read_until_stopped(self) -> None:
        began = time.monotonic()
        self._check()
        self._refused = None
        self._checked.set()
        with ExitStack() as closing:
            closing.callback(self._topic.close)
            closing.callback(self._barrier.disconnect)
            self._begin()
            while not self._stopping.is_set() and not self._topic.is_complete:
                self._turn()
            seconds = time.monotonic() - began
            while not self._stopping.is_set():
                self._note_read(seconds)
                self._turn()

    def _turn(self) -> None:
        eager = self._barrier.is_waiting() or not self.is_ready
        records = self._topic.turn(_EAGER_POLL_MS if eager else _POLL_MS)
        if records:
            self._state.absorb(self._settings.holds_topic, records)
        positions = self._topic.positions
        if positions != self._positions:
            self._positions = dict(positions)
            self._barrier.applied(self._positions)
            self.on_change()
        self._barrier.ask_again()
        self._barrier.open_overdue()
        self._check_now_and_then()
        self._ledger.deliver()
        if self._failure is not None:
            raise self._failure

    # ------------------------------------------------------------ the topic's settings

    def _check(self) -> None:
        self._checked_at = time.monotonic()
        if self._settings.trust_topic:
            self._alarms.trusted()
        else:
            self._alarms.judge(self._topic.facts())

    def _check_now_and_then(self) -> None:
        since = time.monotonic() - self._checked_at
        if self._settings.trust_topic or since < self._settings.check_interval:
            return
        self._checked_at = time.monotonic()
        self._check_thread = threading.Thread(
            target=self._check_again, name="safeconsumer-control-check", daemon=True
        )
        self._check_thread.start()

    def _check_again(self) -> None:
        try:
            self._check()
        except ControlTopicError as error:
            self._failure = error
            self._topic.wake()
        except Exception:  # reading shows whether the cluster is unreachable
            log.debug("the holds topic's settings could not be read", exc_info=True)

    # ------------------------------------------------------------ beginning

    def _begin(self) -> None:
        for one in self._topic.begin():
            self._state.topic_recreated()
            self._alarms.recreated(one)
        self._positions = dict(self._topic.positions)
        self._failure = None
        self._barrier.connect(self._ask, self._positions)

    def _note_read(self, seconds: float) -> None:
        if not self.is_ready and self._alarms.read(self._state.count(), seconds):
            self._failures = 0
            self._ledger.deliver()
            self.on_change()

    def _ask(self, answer: Callable[[Offsets | None], object]) -> None:
        try:
            self._topic.ask_end(answer)
        except Exception as error:  # noqa: BLE001 - an assignment must not fail with it
            self._failure = error  # the next connection requests the end again
            answer(None)
