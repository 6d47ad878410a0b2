"""Reads the holds topic on its own thread, and starts again after every failure."""

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

# Milliseconds; a poll returns at the first record, so this only limits how late timers
# run.
_POLL_MS = 500
# The same while a gate is closed: if compaction removed a topic's last records, poll()
# does not return at the end of the topic.
_EAGER_POLL_MS = 20
_BACKOFF = (0.1, 0.2, 0.5, 1.0, 2.0)
# Seconds within which the thread must end, if the caller gives no limit.
_END_SECONDS = 2.0


class Reader:
    """
    Applies the holds topic's records, and reports to the barrier how far it has read.

    The reader keeps the holds through every failure: an unreachable broker, a topic
    that is deleted, refused or recreated, or a defect of this package.

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
        Start to read; wait at most this many seconds until the topic is checked.

        Raises:
            ControlTopicError: the topic is unfit; no thread is left running.
        """
        self._thread.start()
        self._checked.wait(timeout)
        if self._refused is not None:
            self.stop()
            raise self._refused

    def ask_to_stop(self) -> None:
        """Let the thread and the client end, without waiting for them; takes no lock."""
        self._stopping.set()

    def stop(self, until: float | None = None) -> None:
        """
        Stop the thread, and wait for its end until a time on the monotonic clock.

        Without ``until`` the wait takes two seconds at most.
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
        """Whether all records on the topic are applied, and no failure followed."""
        return self._alarms.is_ready

    def positions(self) -> Offsets:
        """Return the offsets below which the member obeys all records."""
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
            self._refused = error  # set before _lose() lets start() continue
            self._lose(str(error))
        except BaseException as error:  # noqa: BLE001 - without the reader no hold would arrive
            self._lose(f"{type(error).__name__}: {error}")
        if not self._stopping.is_set():
            self._wait()

    def _wait(self) -> None:
        # The waits are short, because gates may have to open between them.
        wait = _BACKOFF[min(self._failures, len(_BACKOFF) - 1)]
        self._failures += 1
        self._stopping.wait(wait)
        self._barrier.open_overdue()
        self._ledger.deliver()

    def _lose(self, reason: str) -> None:
        self._barrier.disconnect()
        self._checked.set()  # start() must not wait for a check that may never end
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
        except Exception:  # the reader itself notices an unreachable cluster
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
            self._failure = error  # the next client requests the end again
            answer(None)
