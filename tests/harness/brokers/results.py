# ruff: noqa: T201 - the program prints its result
"""
Writes the outcome of each test of a run to a file, and compares several such files.

``python -m tests.harness.brokers.results LISTING FILE...`` fails if a listed test did
not run in any of the runs. ``pytest --collect-only --results-file`` writes the listing,
and test runs with ``--results-file`` write the other files. Tests with the marker
``nightly`` need not have run.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

#: The entries of a listing for nightly tests, and for all other tests.
NIGHTLY, LISTED = "nightly", "listed"

# The outcomes from best to worst; a test whose call passes but whose teardown fails has
# failed.
_ORDER = ("skipped", "passed", "xfailed", "xpassed", "failed")


class ResultsFile:
    """
    A pytest plugin that writes ``{nodeid: outcome}`` as JSON when the session ends.

    With ``--collect-only`` the plugin writes a listing instead, which only says for
    each test whether it has the marker ``nightly``.
    """

    def __init__(self, path):
        self._path = path
        self._outcomes = {}

    def pytest_collection_finish(self, session):
        """List the collected tests if pytest only collects tests."""
        if session.config.option.collectonly:
            for item in session.items:
                is_nightly = item.get_closest_marker("nightly") is not None
                self._outcomes[item.nodeid] = NIGHTLY if is_nightly else LISTED

    def pytest_runtest_logreport(self, report):
        """Record the worst outcome of a test's set-up, call and teardown."""
        outcome = _outcome(report)
        if outcome is None:
            return
        known = self._outcomes.get(report.nodeid, "skipped")
        worst = max(known, outcome, key=_ORDER.index)
        self._outcomes[report.nodeid] = worst

    def pytest_sessionfinish(self):
        text = json.dumps(self._outcomes, indent=1, sort_keys=True)
        self._path.write_text(text + "\n")


def _outcome(report):
    if hasattr(report, "wasxfail"):
        return "xfailed" if report.skipped else "xpassed"
    if report.when == "call" or not report.passed:
        return report.outcome
    return None


def have_run(runs):
    """Return the tests that passed or failed in at least one run."""
    return {
        test for run in runs for test, outcome in run.items() if outcome != "skipped"
    }


def never_ran(listing, ran):
    """Return the sorted ids of the tests that should have run but did not."""
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
