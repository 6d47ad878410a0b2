"""Churn tests: ``python -m tests.sim.churn --seeds 0-199 --minutes 30 [--plant NAME]``."""

# ruff: noqa: E402, T201 - the program prints; threads and clocks are replaced before
# other modules import them
import os
import sys

if os.environ.get("PYTHONHASHSEED") != "0":  # gives sets of strings one order
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    os.execve(sys.executable, sys.orig_argv, environment)  # noqa: S606 - this program itself

from tests.sim import threads

threads.install()

import argparse
import time
import traceback

from attrs import evolve

from tests.sim.churn.judge import ViolationError
from tests.sim.churn.nemesis import Churn
from tests.sim.churn.planted import PLANTS, planted
from tests.sim.churn.playing import played


def main():
    """Run a churn test for each seed; return true if any of them finds a violation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-9", help="one seed, or first and last")
    parser.add_argument("--minutes", type=float, default=30.0, help="virtual minutes")
    parser.add_argument("--workers", action="store_true", help="members are Workers")
    parser.add_argument("--operators", action="store_true", help="hold the group")
    parser.add_argument("--preempt", type=float, default=0.0, help="chance at a lock")
    parser.add_argument("--plant", choices=PLANTS, help="break the product first")
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    churn = Churn(minutes=given.minutes, are_workers=given.workers)
    if given.operators:
        churn = evolve(churn, is_controlled=True)
    with planted(given.plant):
        found = [seed for seed in seeds if not _is_good(churn, seed, given.preempt)]
    print(f"{len(seeds)} seeds, {given.minutes:g} minutes: found by {found or 'none'}")
    return bool(found)


def _is_good(churn, seed, preempt):
    began = time.process_time()
    try:
        judge = played(churn, seed, preempt=preempt)
    except ViolationError as violation:
        print(f"seed {seed}: {violation}", *violation.__notes__, sep="\n", flush=True)
        return False
    except Exception:  # noqa: BLE001 - the error is printed, and the next seed runs
        print(f"seed {seed}: {traceback.format_exc()}", flush=True)
        return False
    cost = time.process_time() - began
    print(f"seed {seed}: {cost:.2f} s of CPU, saw {dict(judge.seen)}", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
