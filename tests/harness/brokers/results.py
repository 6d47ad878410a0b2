"""What became of each test, or which tests there are, in a file for ``merge_results``."""

import json

#: What a listing says of tests that only the night runs, and of all others.
NIGHTLY, LISTED = "nightly", "listed"

# An outcome replaces one that stands further left: a failing teardown is a failure.
_ORDER = ("skipped", "passed", "xfailed", "xpassed", "failed")


class ResultsFile:
    """
    A pytest plugin that writes ``{nodeid: outcome}`` as JSON when the session ends.

    With ``--collect-only`` it writes a listing: no outcome, but whether a test is
    one of the night's.
    """

    def __init__(self, path):
        self._path = path
        self._outcomes = {}

    def pytest_collection_finish(self, session):
        """List what was collected, if nothing will be run."""
        if session.config.option.collectonly:
            for item in session.items:
                is_nightly = item.get_closest_marker("nightly") is not None
                self._outcomes[item.nodeid] = NIGHTLY if is_nightly else LISTED

    def pytest_runtest_logreport(self, report):
        """Note the worst of a test's set-up, call and teardown."""
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
