"""
Remembers after how long held topics delete records, so that a scrape need not ask.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress

from kafka.errors import KafkaError

from safeconsumer.console.problems import Problem
from safeconsumer.errors import ControlTopicError
from safeconsumer.group.errand import Errand

# For how long an answer stands, and a failure too, seconds.
_STANDS = 60.0
# Prometheus gives a scrape ten seconds: it gets the first answer if that comes soon.
_MOMENT = 1.0

Limits = Mapping[str, float | None]
"""
Seconds after which topics delete records, by name; None for never, by age.
"""


class Retention:
    """
    Asks once a minute, for all held topics together, on a thread of its own.

    Whoever wants to know waits a second at most, and that once for each question: a
    broker that does not answer is waited for by nobody else. The last answer stands
    until there is a newer one.

    Args:
        ask: asks the cluster; it may take as long as it likes.

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
        """
        Return what is known; topics of which nothing is known are not among them.
        """
        with self._lock:
            begun = self._begin(names)
        if begun is not None:
            with suppress(TimeoutError):  # what was known stands
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
            return  # nobody can tell: asked again when its time has come
