# ruff: noqa: T201  what it prints is what it is for
"""
Merge the results of several runs; fail for tests that ran in none of them.

``python -m tests.harness.brokers.merge_results FILE...`` with files of
``--results-file``.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path


def merge(runs: list[dict[str, str]]) -> dict[str, set[str]]:
    """All outcomes of each test, over all runs."""
    merged: dict[str, set[str]] = {}
    for run in runs:
        for test, outcome in run.items():
            merged.setdefault(test, set()).add(outcome)
    return merged


def never_ran(merged: dict[str, set[str]]) -> list[str]:
    """Return the tests that were skipped in every run, sorted."""
    return sorted(test for test, outcomes in merged.items() if outcomes == {"skipped"})


def main(arguments: list[str] | None = None) -> int:
    """Print what came of it; 0 if every test ran somewhere, 1 if one did not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    runs = []
    for file in parser.parse_args(arguments).files:
        run = json.loads(file.read_text())
        counts = sorted(Counter(run.values()).items())
        print(f"{file}: {', '.join(f'{n} {outcome}' for outcome, n in counts)}")
        runs.append(run)
    merged = merge(runs)
    missed = never_ran(merged)
    for test in missed:
        print(f"never ran: {test}")
    print(f"{len(merged)} tests, {len(missed)} of them ran nowhere")
    if not merged:
        print("no test at all is no success")
    return 1 if missed or not merged else 0


if __name__ == "__main__":
    sys.exit(main())
