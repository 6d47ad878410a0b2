"""Measures the rows per second and the memory that the audit needs for generated journals."""

import json
import tempfile
import time
from pathlib import Path

from tests.bench.figures import Figure
from tests.harness.processes import ran_python

_PARTITIONS = 8
_COMMIT_EVERY = 10  # polls


def write(folder, rows, run, members=2):
    """Write valid journals, in which members share the partitions, poll and commit."""
    each = _PARTITIONS // members
    for number in range(members):
        names = [f"orders:{n}" for n in range(number * each, (number + 1) * each)]
        with (folder / f"m{number}.journal").open("w") as file:
            _write_one(file.write, f"m{number}", names, rows // members, run)


def _write_one(emit, member, names, rows, run):
    count, at, next_ = 0, 1000.0, dict.fromkeys(names, 0)

    def line(event, **fields):
        nonlocal count, at
        count, at = count + 1, at + 0.001
        entry = {"n": count, "at": round(at, 6), "e": event, **fields}
        emit(json.dumps(entry, separators=(",", ":")) + "\n")

    head = {"journal": 5, "member": member, "group": "g", "at": at}
    emit(json.dumps(head, separators=(",", ":")) + "\n")
    line("assigned", partitions=names, generation=1)
    for poll in range(rows // run):
        began = {"after": count, "asked": round(at, 6)}
        name = names[poll % len(names)]
        first, last = next_[name], next_[name] + run - 1
        span = {"from": first, "next": last + 1, "first": first, "last": last}
        line("deliver", tp=name, **span, count=run, **began, written=at)
        next_[name] = last + 1
        if poll % _COMMIT_EVERY == 0:
            commit = {"op": "commit", "id": -poll - 1, "offsets": dict(next_)}
            line("call", **commit)
            line("return", **commit)


def judged(row, length, rows, limit):
    """Return a benchmark that judges this many rows, and then ten times as many."""

    def figures(stage):
        few = rows // stage.sizes.scale
        seconds, memory = _judged(few, length)
        more_seconds, more_memory = _judged(10 * few, length)
        note = f"{10 * few:,} rows, two journals, one process, with its start"
        speed = 10 * few / more_seconds
        name = f"rows judged, {length} to a run"
        took = {"s": [seconds, more_seconds]}
        yield Figure(row, name, speed, "1/s", at_least=limit, rounds=took, note=note)
        name = f"memory, {10 * few:,} rows over {few:,}"
        over = more_memory / memory
        used = {"MB": [memory, more_memory]}
        yield Figure(row, name, over, "ratio", at_most=1.3, rounds=used)

    return figures


def _judged(rows, run):
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write(folder, rows, run)
        began = time.monotonic()
        code = (
            "import sys\n"
            "from safeconsumer.cli.commands import safeconsumer\n"
            "from tests.bench.memory import peak_mb\n"
            "try:\n"
            "    safeconsumer(['audit', sys.argv[1]])\n"
            "finally:\n"
            "    sys.stderr.write(str(peak_mb()))\n"
        )
        done = ran_python("-c", code, folder, check=True, timeout=None)
        assert "clean: 2 journals" in done.stdout
        return time.monotonic() - began, float(done.stderr)


ROWS = {
    "polled": judged("polled", 500, 10_000_000, 1_400_000.0),
    "iterated": judged("iterated", 1, 200_000, None),
}
