"""
A pytest plugin that counts test outcomes, and the objects of each of our classes.

``python -m tests.system.contract.upstream`` uses the plugin. An environment variable
names the file for the report.
"""

import functools
import json
import os
from collections import Counter
from pathlib import Path

from safeconsumer import SafeConsumer
from safeconsumer._kafka.pausing.coordinator import PauseSafeCoordinator
from safeconsumer._kafka.pausing.fetcher import PauseSafeFetcher
from safeconsumer._kafka.pausing.subscription import LedgerSubscription

REPORT_VARIABLE = "SAFECONSUMER_UPSTREAM_REPORT"
CLASSES = {
    "SafeConsumer": SafeConsumer,
    "PauseSafeFetcher": PauseSafeFetcher,
    "PauseSafeCoordinator": PauseSafeCoordinator,
    "LedgerSubscription": LedgerSubscription,
}

outcomes = Counter()
constructed = Counter()
failures = []


def _counted(name, kind):
    init = kind.__init__

    @functools.wraps(init)
    def counting(self, *args, **configs):
        if type(self) is kind:
            constructed[name] += 1
        init(self, *args, **configs)

    kind.__init__ = counting


for class_name, ours in CLASSES.items():
    _counted(class_name, ours)


def pytest_runtest_logreport(report):
    """Count the outcome of a test's call, and each setup or teardown that did not pass."""
    if report.when == "call" or report.outcome != "passed":
        outcomes[report.outcome] += 1
        if report.failed:
            failures.append(report.nodeid)


def pytest_sessionfinish():
    Path(os.environ[REPORT_VARIABLE]).write_text(
        json.dumps(
            {
                "passed": outcomes["passed"],
                "failed": outcomes["failed"],
                "skipped": outcomes["skipped"],
                "constructed": {name: constructed[name] for name in CLASSES},
                "failures": failures,
            }
        ),
        encoding="utf-8",
    )
