"""
Plays Spark's part for a stream of the Python source, in a process that can be killed.

``python -m tests.harness.spark.killable FOLDER STOP OPTIONS`` runs batches as Spark does:
the offset log first, then the rows, which replace what the folder has of that batch,
then the commit log. What is in the offset log alone is read again in full. At its third
batch it says where it is, and waits to be killed: ``planned`` (nothing is read yet),
``read`` (some rows are), ``written`` (all are, and the batch is not committed). With
``end`` it reads what there is, and ends.
"""

import json
import sys
import time
from pathlib import Path

from safeconsumer.spark import offsets
from safeconsumer.spark.python import reading, settings
from safeconsumer.spark.python.planner import Planner

MOST = 40
_THIRD = 3


class Batches:
    def __init__(self, folder, stop, options):
        self.folder, self.stop = folder, stop
        self.settings = settings.parse(options)
        self.planner = Planner(self.settings)
        self.count = 0
        for name in ("offsets", "commits", "rows"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def run(self):
        numbers = sorted(int(one.name) for one in (self.folder / "offsets").iterdir())
        at = self._of(numbers[-1]) if numbers else self.planner.initial()
        number = numbers[-1] if numbers else -1
        if numbers and not (self.folder / "commits" / str(number)).exists():
            before = self._of(number - 1) if number else self.planner.initial()
            self._batch(number, before, at)
        while True:
            end = self.planner.end(at, MOST)
            if end == at:
                return
            number += 1
            self._write("offsets", number, offsets.render(end))
            self._batch(number, at, end)
            at = end

    def _batch(self, number, start, end):
        self.count += 1
        self._say("planned")
        rows = []
        for task in self.planner.tasks(start, end):
            for one in task:
                for records in reading.read(self.settings, one):
                    rows += [(row.topic, row.partition, row.offset) for row in records]
                    self._say("read")
        self._write("rows", number, json.dumps(rows))
        self._say("written")
        self._write("commits", number, "")

    def _say(self, place):
        if place == self.stop and self.count == _THIRD:
            print(place, flush=True)  # noqa: T201  the one who kills it reads it
            while True:
                time.sleep(60)

    def _of(self, number):
        return offsets.parse((self.folder / "offsets" / str(number)).read_text())

    def _write(self, log, number, text):
        part = self.folder / f"part-{log}"
        part.write_text(text)
        part.replace(self.folder / log / str(number))


if __name__ == "__main__":
    made = Batches(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))
    made.run()
    made.planner.close()
