"""Checks at the start, and again later, that the holds topic keeps holds."""

import logging
import threading
import time
from collections.abc import Callable

from safeconsumer.errors.base import ControlTopicError
from safeconsumer.group import topics
from safeconsumer.group.alarms import TopicAlarms
from safeconsumer.group.settings import Control

log = logging.getLogger("safeconsumer.group")


class TopicCheck:
    """
    Asks the broker about the holds topic's settings.

    Args:
        settings: the name of the topic, and how often to check.
        ask: returns the facts about the holds topic, or raises. Any thread.
        alarms: judges the facts.

    Thread rules: the reader's thread; :meth:`stop` on any.
    """

    def __init__(
        self,
        settings: Control,
        ask: Callable[[], topics.Facts],
        alarms: TopicAlarms,
    ) -> None:
        self._settings = settings
        self._ask = ask
        self._alarms = alarms
        self._asked_at = time.monotonic()
        self._thread: threading.Thread | None = None

    def at_once(self) -> None:
        """
        Check that the topic is fit, as far as can be found out; raise if not.

        Raises:
            ControlTopicError: it is not; the message says what to do.
            Exception: the client's, if it is missing or may not be read, or no broker
            answers.
        """
        self._asked_at = time.monotonic()
        if not self._settings.trust_topic:
            self._alarms.judge(self._ask())

    def now_and_then(self, found: Callable[[ControlTopicError], object]) -> None:
        """
        Ask again if a check is due, on a thread for which nothing waits.

        Args:
            found: called on that thread if the topic has become unfit.
        """
        since = time.monotonic() - self._asked_at
        if self._settings.trust_topic or since < self._settings.check_interval:
            return
        self._asked_at = time.monotonic()
        self._thread = threading.Thread(
            target=self._ask_again,
            args=(found,),
            name="safeconsumer-control-check",
            daemon=True,
        )
        self._thread.start()

    def stop(self, until: float) -> None:
        """Wait until then, on the monotonic clock, for a question under way."""
        if self._thread is not None:
            self._thread.join(max(0.0, until - time.monotonic()))

    def _ask_again(self, found: Callable[[ControlTopicError], object]) -> None:
        try:
            self.at_once()
        except ControlTopicError as error:
            found(error)
        except Exception:  # the reader notices by itself if the cluster is away
            log.debug("the holds topic's settings could not be read", exc_info=True)
