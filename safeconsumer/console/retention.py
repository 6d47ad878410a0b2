"""Caches the retention times of held topics, so that scrapes need not ask for them."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress

from kafka.errors import KafkaError

from safeconsumer.console.problems import Problem
from safeconsumer.errors import ControlTopicError
from safeconsumer.group.errand import Errand

# Seconds for which an answer or a failure is kept.
_STANDS = 60.0
# Seconds that a scrape waits for the first answer; Prometheus gives a scrape ten.
_MOMENT = 1.0

Limits = Mapping[str, float | None]
"""
Seconds after which topics delete records, by name; None if age deletes none.
"""


class Retention:
    """
    Asks once a minute, for all held topics together, on a separate thread.

    A caller waits a second at most, and only the caller that starts a request: no other
    caller waits for a broker that does not answer. The last answer is used until there
    is a newer one.

    Args:
        ask: asks the cluster; it may take any length of time.

    Thread rules: any.
    """

    def __init__(self, ask: Callable[[Sequence[str]], Limits]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._errand: Errand[None] | None = None
        self._asked: AbstractSet[str] = frozenset()
        self._asked_at = 0.0
        self._known: Limits = {}

    def of(self, names: AbstractSet[str]) -> Limits:
        """Return what is known; topics with unknown retention are left out."""
        with self._lock:
            begun = self._begin(names)
        if begun is not None:
            with suppress(TimeoutError):  # the last answer is still used
                begun.result(_MOMENT)
        return self._known

    def _begin(self, names: AbstractSet[str]) -> Errand[None] | None:
        is_new = not names <= self._asked
        is_due = is_new or time.monotonic() - self._asked_at >= _STANDS
        is_busy = self._errand is not None and not self._errand.is_over
        if not names or is_busy or not is_due:
            return None
        self._asked, self._asked_at = frozenset(names), time.monotonic()
        wanted = sorted(names)
        self._errand = Errand(lambda: self._learn(wanted))
        return self._errand

    def _learn(self, names: Sequence[str]) -> None:
        try:
            self._known = dict(self._ask(names))
        except (ControlTopicError, KafkaError, OSError, Problem):
            return  # still unknown, and asked for again when that is due
