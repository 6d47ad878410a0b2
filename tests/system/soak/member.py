"""
Runs one member in its own process: ``python -m tests.system.soak.member JSON``.

Each line on stdin is a call as JSON: ``["call", METHOD, ARGUMENT, ...]`` between two
polls, or ``["call_beside", ...]`` on another thread. The member leaves when stdin is
closed.
"""

import json
import os
import random
import sys
import threading
import time
import traceback
from itertools import count
from math import inf
from pathlib import Path
from pkgutil import resolve_name

from kafka.errors import KafkaError

from safeconsumer import Control, SafeConsumer
from safeconsumer.journal.writer import JournalWriter
from safeconsumer.worker.settings import Commit, Drain
from tests.harness.churn.member import Committing, Working
from tests.harness.waiting import retried
from tests.system.soak.settings import ASSIGNORS, GROUP, MEMBER
from tests.system.soak.stock import StockConsumer

_START = 300.0  # seconds in which a broker must answer a member that starts
_PATTERN = "^soak-.*"


class Host:
    """The clock, the random draws and the constants for a program in a real process."""

    batches = (7, 50, 200)
    closing_ms = 3000
    tolerated = (KafkaError,)
    working = 0.2  # maximum seconds that processing one poll's records takes

    def __init__(self, seed, *, is_ours):
        self.rng, self.serial = random.Random(seed), count()  # noqa: S311 - repeatable draws
        self.sleep = time.sleep
        # Without the lock, calls that were pending while the process was frozen would
        # overlap. The audit cannot judge a hold whose pause overlaps with a resume.
        self.ordering = threading.Lock()
        self._is_ours = is_ours

    @property
    def now(self):
        return time.monotonic()

    def beside(self, member, call):
        """Make a call on a new thread; for kafka-python's consumer, on the polling thread."""
        if not self._is_ours:
            member.todo.append(call)
        elif member.consumer is not None:
            threading.Thread(target=_made, args=(member, call), daemon=True).start()

    def listener(self, _book):
        """Return no listener, because the consumer journals its assignments itself."""

    def worker_settings(self):
        return {
            "concurrency": 2,
            "drain": Drain(revoke=1.0),
            "commit": Commit(every=0.5),
        }

    def work(self):
        if self.rng.random() < 0.01:
            self.sleep(self.rng.uniform(0.0, 0.5))


def _made(member, call):
    try:
        call()
    except Exception:  # noqa: BLE001 - the soak must notice any error
        if not member.is_over:
            traceback.print_exc()
            os._exit(1)


class Book:
    """Keeps a program's holds, and writes its errors to the journal for the audit."""

    owned = ()

    def __init__(self, journal):
        self.holds = {}
        self._journal = journal

    def placed(self, owner, scope, until=inf):
        self.holds[owner, scope] = until

    def lifted(self, owner, scope):
        self.holds.pop((owner, scope), None)

    def failed(self, error):
        text = f"{type(error).__name__}: {error}"
        self._journal.write("error", {"what": text[:300]})

    def log(self, _line):
        """Do nothing, because the consumer journals its calls itself."""

    def delivered(self, tp, offsets):
        """Do nothing, because the consumer journals the delivered records itself."""

    def begins(self, _tp, _offset):
        """Return a function without effect, because the worker journals its handlers."""
        return bool

    left = look = log


def member(options):
    """Create the member that these options describe, without starting it."""
    kind = resolve_name(options["consumer"])
    is_ours = issubclass(kind, SafeConsumer)
    journals, name = Path(options["journals"]), options["name"]
    journal = JournalWriter(journals, member=name, group=GROUP)
    control = Control(clock_skew=0.5, status_topic=None, start_timeout=2.0)
    settings = {
        **MEMBER,
        "bootstrap_servers": options["bootstrap"].split(","),
        "client_id": name,
        "group_id": GROUP,
        "partition_assignment_strategy": [ASSIGNORS[options["assignor"]]],
        **({"journal": journal, "control": control} if is_ours else {}),
    }

    def made():
        consumer = retried(lambda: kind(**settings), KafkaError, limit=_START)
        return consumer if is_ours else StockConsumer(consumer, journal, GROUP)

    program = Working if options["is_worker"] else Committing
    host = Host(options["seed"], is_ours=is_ours)
    return program(host, Book(journal), made, _PATTERN)


def _listen(one):
    for line in sys.stdin:
        how, method, *given = json.loads(line)
        getattr(one, how)(method, *given)
    one.stop()


def main():
    one = member(json.loads(sys.argv[1]))
    threading.Thread(target=_listen, args=(one,), daemon=True).start()
    one.live()


if __name__ == "__main__":
    main()
