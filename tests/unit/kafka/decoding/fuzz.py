"""
Both decoders read damaged answers until the time is up, and so many at least.

``python -m tests.unit.kafka.decoding.fuzz --seconds 600`` looks longer, ``--replay``
looks again. What it reads stands in ``--input``, so that it is known after a crash as
well.
"""

import argparse
import faulthandler
import json
import mmap
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from attrs import asdict

from tests.unit.kafka.decoding.compare import Aborted, Case, compared, errors_of
from tests.unit.kafka.decoding.damage import case

_HANGS_AFTER = 20.0
_BETWEEN_ALARMS = 1.0
_AT_LEAST = 100  # however slow the machine: they have damage of every kind
_ROOM = 2**17


def to_json(one: Case) -> str:
    """Tell a case on one line, its data as hex."""
    told = asdict(one)
    told = {key: value for key, value in told.items() if "deserializer" not in key}
    return json.dumps({**told, "data": one.data.hex()})


def from_json(line: str) -> Case:
    """Read what ``to_json`` told."""
    told: dict[str, Any] = json.loads(line)
    told["data"] = bytes.fromhex(told["data"])
    told["aborted"] = [Aborted(**one) for one in told["aborted"]]
    return Case(**told)


def main() -> int:
    """Print a line of counts, or the first answer that was read otherwise."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))  # noqa: S311
    parser.add_argument("--input", type=Path, default=None)
    parser.add_argument("--replay", default=None)
    options = parser.parse_args()
    faulthandler.enable()
    if options.replay:
        print(compared(from_json(options.replay)))  # noqa: T201 - a program
        return 0
    print(f"seed {options.seed}", flush=True)  # noqa: T201
    with _last_input(options.input) as last:
        return _run(options.seed, options.seconds, last)


def _run(seed: int, seconds: float, last: mmap.mmap) -> int:
    dice = random.Random(seed)  # noqa: S311 - no secret
    outcomes: Counter[str] = Counter()
    until, count, alarm_at = time.monotonic() + seconds, 0, 0.0
    while count < _AT_LEAST or time.monotonic() < until:
        if time.monotonic() >= alarm_at:
            faulthandler.dump_traceback_later(_HANGS_AFTER, exit=True)
            alarm_at = time.monotonic() + _BETWEEN_ALARMS
        count += 1
        one = case(dice)
        line = to_json(one).encode()[:_ROOM]
        last[: len(line) + 1] = line + b"\n"
        try:
            steps = compared(one)
        except AssertionError:
            print(f"read otherwise: {to_json(one)}", flush=True)  # noqa: T201
            return 1
        outcomes.update(error.__name__ for error in errors_of(steps)[:1] or (int,))
    faulthandler.cancel_dump_traceback_later()
    outcomes["records"] = outcomes.pop("int", 0)
    print(f"{count} answers: {dict(outcomes)}")  # noqa: T201
    return 0


def _last_input(path: Path | None) -> mmap.mmap:
    # Memory that outlives the process, without a write to disk for every answer.
    if path is None:
        return mmap.mmap(-1, _ROOM + 1)
    path.write_bytes(bytes(_ROOM + 1))
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), _ROOM + 1)


if __name__ == "__main__":
    sys.exit(main())
