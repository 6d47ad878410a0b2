"""
Runs kafka-python's own consumer tests with our classes in place of four of its classes.

``python -m tests.system.contract.upstream --source DIR`` needs pytest-mock, and a
checkout of the tag nearest to the installed version. With ``--kafka java`` the program
also runs upstream's consumer integration tests. For comparison, ``--stock`` runs the
same tests with kafka-python's own classes. The program prints JSON. It exits with 0
only if the failing tests are exactly those that promise P13 excepts; with ``--stock``
no test may fail.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.harness.brokers.choice import Kind, start
from tests.harness.brokers.settings import KAFKA_VERSION
from tests.system.contract.upstream_report import REPORT_VARIABLE

REPOSITORY = Path(__file__).resolve().parents[3]

UNIT = ("test/consumer", "test/test_mock_broker.py", "test/test_package.py")
INTEGRATION = ("test/integration/test_consumer_integration.py",)

# These tests read private dictionaries of upstream's fetcher. Our fetcher keeps fetched
# records in the buffer of their partition's ownership instead.
_FETCHES = "test/consumer/test_fetcher.py::test_"
MOVED = {
    _FETCHES + "fetched_records_parks_raw_completion_for_paused_partition",
    _FETCHES + "fetched_records_parks_parsed_records_on_pause_between_calls",
    _FETCHES + "fetched_records_other_partitions_progress_while_one_paused",
    _FETCHES + "close_drains_parked_paused_records",
}

# These tests commit partitions that the member does not own, which P17 forbids.
_COMMITS = "test/consumer/test_coordinator.py::test_"
EXCEPTED = MOVED | {
    _COMMITS + "commit_offsets_sync",
    *(
        f"{_COMMITS}send_offset_commit_request_versions[broker{n}]"
        for n in ("2-2", "3-3", "4-4", "5-6")
    ),
    _COMMITS + "send_offset_commit_request_failure",
    _COMMITS + "send_offset_commit_request_success",
}

# The time limit for one run in seconds; the unit tests take ten seconds, the
# integration tests one or two minutes.
LIMIT = 900


def main():
    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        # Only the tests are copied. Next to the checkout's package they would import that
        # package instead of the installed one.
        shutil.copytree(options.source / "test", Path(folder, "test"))
        reports = {"unit": _run(folder, UNIT, {}, substituted=not options.stock)}
        if options.kafka:
            with start(Kind(options.kafka)) as broker:
                reports["integration"] = _run(
                    folder,
                    INTEGRATION,
                    _broker(broker.bootstrap, folder),
                    substituted=not options.stock,
                )
    sys.stdout.write(json.dumps(reports, indent=2) + "\n")
    failures = {one for report in reports.values() for one in report["failures"]}
    return int(failures != (set() if options.stock else EXCEPTED))


def _options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--kafka", choices=[kind.value for kind in Kind])
    parser.add_argument("--stock", action="store_true")
    return parser.parse_args()


def _broker(bootstrap, folder):
    # Upstream's fixture needs an existing folder, even for a running broker.
    return {
        "KAFKA_VERSION": KAFKA_VERSION,
        "KAFKA_URI": f"kafka://{bootstrap}",
        "KAFKA_ROOT": folder,
    }


def _run(folder, tests, more, *, substituted):
    report = Path(folder, "report.json")
    report.unlink(missing_ok=True)
    plugins = ["tests.system.contract.upstream_report"]
    if substituted:
        plugins.append("tests.system.contract.substitute")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:safeconsumer"]
    command += [part for plugin in plugins for part in ("-p", plugin)]
    command += ["-o", "log_level=DEBUG", "--timeout=300", *tests]
    done = subprocess.run(  # noqa: S603 - our own interpreter, our own arguments
        command,
        cwd=folder,
        env={
            **os.environ,
            **more,
            "PYTHONPATH": str(REPOSITORY),
            REPORT_VARIABLE: str(report),
        },
        stdout=sys.stderr,
        timeout=LIMIT,
        check=False,
    )
    if not report.exists():
        message = f"pytest ended with {done.returncode} and left no report"
        raise SystemExit(message)
    return json.loads(report.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main())
