"""
One member in a process of its own: ``python -m tests.system.soak.member JSON``.

After the line ``drain`` on stdin it lifts its holds and places no more; it leaves the
group when stdin ends.
"""

import json
import random
import sys
import threading
import time
from pathlib import Path
from pkgutil import resolve_name

from kafka import OffsetAndMetadata
from kafka.errors import KafkaError

from safeconsumer import Control, SafeConsumer, Worker
from safeconsumer.journal.writer import JournalWriter
from safeconsumer.worker.settings import Commit, Drain
from tests.harness.scopes import short
from tests.harness.waiting import retried
from tests.system.soak.settings import ASSIGNORS, GROUP, MEMBER, TOPICS
from tests.system.soak.stock import StockConsumer

_OWNERS = ("app", "maintenance", "alice")
_WIDE_SCOPES = {
    **dict.fromkeys(TOPICS, 2.0),
    **dict.fromkeys(("re:soak-.*", "re:soak-(orders|returns)", "re:.*-audit"), 1.3),
    "@all": 2.0,
}
_SHARE_OF_PARTITIONS = 0.4  # of all holds
_HOLDS_AT_ONCE = 2
_POLL_MS = 200
_WORK = 0.2  # seconds at most that a plain program works on the records of a poll
_START = 300.0  # seconds in which a broker answers a member that starts


class Holder:
    """Places and lifts holds of all scopes and owners, a few at a time."""

    def __init__(self, consumer, rng, *, expires):
        self._consumer = consumer
        self._rng = rng
        self._expires = expires
        self._lift_at = {}
        self._next = 0.0

    def turn(self):
        """Lift the holds that are due, and sometimes place another."""
        now = time.monotonic()
        for hold in [one for one, at in self._lift_at.items() if at <= now]:
            self._lift(hold)
        if now >= self._next:
            self._next = now + self._rng.uniform(0.5, 4.0)
            if len(self._lift_at) < _HOLDS_AT_ONCE:
                self._place(now)

    def lift_all(self):
        for hold in list(self._lift_at):
            self._lift(hold)

    def _place(self, now):
        scope, owner = self._drawn_scope(), self._rng.choice(_OWNERS)
        seconds = self._rng.uniform(0.3, 6.0)
        limit = {}
        if self._expires and self._rng.random() < 0.2:
            limit["for_"] = self._rng.uniform(0.3, 3.0)
        if (scope, owner) not in self._lift_at:
            self._lift_at[scope, owner] = now + seconds
            self._consumer.pause(scope, owner=owner, **limit)

    def _drawn_scope(self):
        owned = sorted(self._consumer.assignment())
        if owned and self._rng.random() < _SHARE_OF_PARTITIONS:
            return short(self._rng.choice(owned))
        (scope,) = self._rng.choices(list(_WIDE_SCOPES), list(_WIDE_SCOPES.values()))
        return scope

    def _lift(self, hold):
        del self._lift_at[hold]
        scope, owner = hold
        self._consumer.resume(scope, owner=owner)


class Member:
    """A program that consumes, commits the consumed records, and pauses at random."""

    def __init__(self, options):
        self._rng = random.Random(options["seed"])  # noqa: S311 - to be repeated
        self._ending, self._draining = threading.Event(), threading.Event()
        self._journal = JournalWriter(
            Path(options["journals"]), member=options["name"], group=GROUP
        )
        kind = resolve_name(options["consumer"])
        is_ours = issubclass(kind, SafeConsumer)
        self.consumer = self._made(kind, options, is_ours=is_ours)
        self._holder = Holder(self.consumer, self._rng, expires=is_ours)
        threading.Thread(target=self._listen, daemon=True).start()

    def _made(self, kind, options, *, is_ours):
        control = Control(clock_skew=0.5, status_topic=None, start_timeout=2.0)
        settings = {
            **MEMBER,
            "bootstrap_servers": options["bootstrap"].split(","),
            "client_id": options["name"],
            "group_id": GROUP,
            "partition_assignment_strategy": [ASSIGNORS[options["assignor"]]],
            **({"journal": self._journal, "control": control} if is_ours else {}),
        }
        made = retried(lambda: kind(**settings), KafkaError, limit=_START)
        return made if is_ours else StockConsumer(made, self._journal, GROUP)

    def _listen(self):
        for _ in sys.stdin:
            self._draining.set()
        self._ending.set()

    def run(self, *, as_worker):
        self.consumer.subscribe(pattern="^soak-.*")
        if as_worker:
            self._work()
        else:
            self._poll()

    def _hold(self):
        if self._draining.is_set():
            self._holder.lift_all()
        else:
            self._holder.turn()

    # A plain program

    def _poll(self):
        while not self._ending.is_set():
            self._hold()
            try:
                polled = self.consumer.poll(_POLL_MS)
                if polled:
                    time.sleep(self._rng.uniform(0.0, _WORK))
                    self._commit(polled)
            except KafkaError as error:
                text = f"{type(error).__name__}: {error}"
                self._journal.write("error", {"what": text[:300]})
        self.consumer.close(autocommit=False, timeout_ms=3000)

    def _commit(self, polled):
        done = {
            tp: OffsetAndMetadata(records[-1].offset + 1, "", -1)
            for tp, records in polled.items()
        }
        self.consumer.commit(done, timeout_ms=3000)

    # A worker

    def _work(self):
        worker = Worker(
            self.consumer,
            self._handle,
            concurrency=2,
            drain=Drain(revoke=1.0),
            commit=Commit(every=0.5),
        )
        holding = threading.Thread(target=self._hold_beside, args=(worker,))
        holding.start()
        try:
            worker.run()
        finally:
            self._ending.set()
            holding.join()

    def _handle(self, _record, _context):
        if self._rng.random() < 0.01:
            time.sleep(self._rng.uniform(0.0, 0.5))

    def _hold_beside(self, worker):
        while not self._ending.wait(0.1):
            self._hold()
        worker.stop()


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    Member(given).run(as_worker=given["is_worker"])
