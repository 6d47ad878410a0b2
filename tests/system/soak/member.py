"""
One member in a process of its own: ``python -m tests.system.soak.member JSON``.

Words on stdin: ``drain``: lift your holds and place no more; ``end``: leave the group.
What it did is in its journal.
"""

import importlib
import json
import random
import sys
import threading
import time
from pathlib import Path

from kafka import OffsetAndMetadata
from kafka.errors import KafkaError

from safeconsumer import Control, SafeConsumer, Worker
from safeconsumer.journal.writer import JournalWriter
from safeconsumer.worker.settings import Commit, Drain
from tests.harness.audit.recorded import Recorded
from tests.system.soak.holds import Holder, Stock
from tests.system.soak.settings import ASSIGNORS, GROUP, PATTERN

_POLL_MS = 200
_WORK = 0.2  # seconds at most that a plain program works on what a poll returned


class SoakMember:
    """A program that consumes, commits what it consumed, and pauses at random."""

    def __init__(self, options):
        self._options = options
        self._chance = random.Random(options["seed"])  # noqa: S311 - to be repeated
        self._ending, self._draining = threading.Event(), threading.Event()
        self._journal = JournalWriter(
            Path(options["journals"]), member=options["name"], group=GROUP
        )
        module, _, name = options["consumer"].rpartition(".")
        kind = getattr(importlib.import_module(module), name)
        self._is_ours = issubclass(kind, SafeConsumer)
        self.consumer = raw = self._made(kind)
        if not self._is_ours:
            self.consumer = Recorded(
                Stock(raw),
                self._journal,
                GROUP,
                lambda: raw._coordinator._generation.generation_id,
            )
        self._holder = Holder(self.consumer, self._chance, expires=self._is_ours)
        threading.Thread(target=self._listen, daemon=True).start()

    def _made(self, kind):
        assignor = ASSIGNORS[self._options["assignor"]]
        while True:
            try:
                return kind(
                    **self._options["client"],
                    group_id=GROUP,
                    partition_assignment_strategy=[assignor],
                    **self._more(),
                )
            except KafkaError as error:  # no broker answers just now
                self._tell(error)
                time.sleep(1)

    def _more(self):
        if not self._is_ours:
            return {}
        return {
            "journal": self._journal,
            "control": Control(**self._options["control"]),
        }

    def _listen(self):
        for line in sys.stdin:
            (self._draining if line.strip() == "drain" else self._ending).set()
        self._ending.set()  # whoever started us is gone

    def run(self):
        self.consumer.subscribe(pattern=PATTERN)
        if self._options["is_worker"]:
            self._work()
        else:
            self._poll()

    def _hold(self):
        if self._draining.is_set():
            self._holder.lift_all()
        else:
            self._holder.turn(time.monotonic())

    # ------------------------------------------------------------ a plain program

    def _poll(self):
        while not self._ending.is_set():
            self._hold()
            try:
                polled = self.consumer.poll(_POLL_MS)
                if polled:
                    time.sleep(self._chance.uniform(0.0, _WORK))
                    self._commit(polled)
            except KafkaError as error:
                self._tell(error)
        self.consumer.close(autocommit=False, timeout_ms=3000)

    def _commit(self, polled):
        done = {
            tp: OffsetAndMetadata(records[-1].offset + 1, "", -1)
            for tp, records in polled.items()
        }
        self.consumer.commit(done, timeout_ms=3000)

    def _tell(self, error):
        self._journal.write("error", {"what": f"{type(error).__name__}: {error}"[:300]})

    # ------------------------------------------------------------ a worker

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

    def _handle(self, record, context):
        del record, context
        if self._chance.random() < 0.01:
            time.sleep(self._chance.uniform(0.0, 0.5))

    def _hold_beside(self, worker):
        while not self._ending.wait(0.1):
            self._hold()
        worker.stop()


if __name__ == "__main__":
    SoakMember(json.loads(sys.argv[1])).run()
