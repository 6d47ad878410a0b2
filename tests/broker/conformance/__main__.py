"""
``python -m tests.broker.conformance``: what each client's pause does, case by case.

Ours and kafka-python 3.0 by default; ``--clients all`` makes virtual environments for
the others with pip, once. ``--write`` puts the tables into the design and the README.
"""

import argparse
import contextlib
import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from safeconsumer.testing import ExistingCluster
from safeconsumer.testing.cases.catalogue import CASES
from tests.harness.brokers.java import JavaBroker
from tests.harness.brokers.settings import KAFKA_VERSION
from tests.harness.conformance import pages, report
from tests.harness.conformance.clients import CLIENTS, IN_CI, OURS, Client
from tests.harness.conformance.environments import python_of
from tests.harness.conformance.outcomes import Outcome, Verdict
from tests.harness.conformance.results import Results
from tests.harness.conformance.run import Tried, run


def main(arguments: list[str] | None = None) -> int:
    """Run and print; the status is 1 unless ours passes, or differs by choice."""
    options = _parser().parse_args(arguments)
    for client in options.clients:
        python_of(client)
    results = _results(options)
    if options.json is not None:
        text = json.dumps(results.as_dict(), indent=1) + "\n"
        options.json.write_text(text, encoding="utf-8")
    if options.write:
        pages.write(results)
    sys.stdout.write(f"{report.full_table(results)}\n\n{report.conditions(results)}\n")
    return 0 if _ours_passes(results) else 1


def _results(options: argparse.Namespace) -> Results:
    with (
        tempfile.TemporaryDirectory() as scratch,
        ThreadPoolExecutor(options.jobs) as pool,
    ):

        def one_client(client: Client) -> Tried:
            log = Path(scratch) / f"{client.name}.log"
            # A broker for each: it is killed where a log is cut.
            with _broker(options) as broker:
                return run(broker, client, options.cases, log, _say)

        found = pool.map(one_client, options.clients * options.runs)
        title = options.broker_title or f"Apache Kafka {KAFKA_VERSION}"
        return Results(tried=tuple(found), broker=title)


def _ours_passes(results: Results) -> bool:
    ours = [one for one in results.clients() if CLIENTS[one].family in OURS]
    return all(
        results.verdict(case, client) in {Verdict.PASSES, Verdict.CHOSEN}
        for case in results.cases()
        for client in ours
    )


def _say(outcome: Outcome) -> None:
    sys.stderr.write(
        f"{outcome.client:22}{outcome.case:32}{outcome.verdict:9}"
        f"{outcome.seconds:5.1f} s  {outcome.seen}\n"
    )
    sys.stderr.flush()


def _broker(options: argparse.Namespace) -> Any:  # noqa: ANN401 - any kind
    if options.bootstrap is not None:
        return contextlib.nullcontext(ExistingCluster(options.bootstrap))
    return JavaBroker()


def _clients(text: str) -> list[Client]:
    names = list(CLIENTS) if text == "all" else text.split(",")
    unknown = [name for name in names if name not in CLIENTS]
    if unknown:
        message = f"no client {', '.join(unknown)}; there are {', '.join(CLIENTS)}"
        raise argparse.ArgumentTypeError(message)
    return [CLIENTS[name] for name in names]


def _cases(text: str) -> list[Any]:
    unknown = [name for name in text.split(",") if name not in CASES]
    if unknown:
        message = f"no case {', '.join(unknown)}; there are {', '.join(CASES)}"
        raise argparse.ArgumentTypeError(message)
    return [CASES[name] for name in text.split(",")]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.broker.conformance")
    parser.add_argument(
        "--clients",
        type=_clients,
        default=[CLIENTS[name] for name in IN_CI],
        metavar="all|NAME,...",
        help=f"of {', '.join(CLIENTS)} (default: {', '.join(IN_CI)})",
    )
    parser.add_argument(
        "--cases",
        type=_cases,
        default=list(CASES.values()),
        metavar="NAME,...",
        help="only these",
    )
    parser.add_argument("--runs", type=int, default=1, help="everything so many times")
    parser.add_argument("--jobs", type=int, default=2, help="clients at the same time")
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="a running broker")
    parser.add_argument("--broker-title", help="what the page calls the broker")
    parser.add_argument("--json", type=Path, help="write the outcomes to this file")
    parser.add_argument(
        "--write", action="store_true", help="write the tables into the pages"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
