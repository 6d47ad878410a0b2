# ruff: noqa: T201  what it prints is what it is for
"""
Merge the results of several runs; fail for tests that ran in none of them.

``python -m tests.harness.brokers.merge_results LISTING FILE...``: the listing is what
``--collect-only --results-file`` wrote, the files are of runs with ``--results-file``.
Tests that are marked ``nightly`` are counted apart: they need not have run.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from tests.harness.brokers.results import NIGHTLY


def have_run(runs):
    """Return the tests that were more than skipped in some run."""
    return {
        test for run in runs for test, outcome in run.items() if outcome != "skipped"
    }


def never_ran(listing, ran):
    """Return the tests that should have run and did not, sorted."""
    return sorted(
        test for test, kind in listing.items() if kind != NIGHTLY and test not in ran
    )


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("listing", type=Path)
    parser.add_argument("files", nargs="+", type=Path)
    given = parser.parse_args(arguments)
    listing = json.loads(given.listing.read_text())
    runs = [json.loads(file.read_text()) for file in given.files]
    for file, run in zip(given.files, runs, strict=True):
        counts = sorted(Counter(run.values()).items())
        print(f"{file.name}: {', '.join(f'{n} {outcome}' for outcome, n in counts)}")
    ran = have_run(runs)
    missed = never_ran(listing, ran)
    for test in missed:
        print(f"never ran: {test}")
    for_the_night = sum(kind == NIGHTLY for kind in listing.values())
    print(
        f"{len(listing)} tests: {len(ran)} ran, {for_the_night} are for the night, "
        f"{len(missed)} ran nowhere"
    )
    if not listing:
        print("no test at all is no success")
    return 1 if missed or not listing else 0


if __name__ == "__main__":
    sys.exit(main())
