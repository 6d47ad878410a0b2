"""
``python -m tests.bench NAME``: measures; ``--help`` lists the names.

Figures, as JSON on stdout. ``overhead`` tells what safety costs over the stock client,
``throughput`` how fast all clients read, ``worker`` what a worker costs over a plain
poll loop, ``group`` how soon a whole group obeys, ``spark`` how the Spark source stands
beside the official one, ``trickle`` how soon, and at which cost, records
are returned that come one by one, ``auditing`` how fast journals are judged, and
``regressions --against COMMIT`` what got slower since a commit: its exit status is 0
if nothing did by more than the noise, which each row names, 1 if something did, 3 if
the machine is too noisy to tell.
"""

import argparse
import contextlib
import importlib
import json
import sys
from collections.abc import Callable
from typing import Any

from attrs import evolve

from safeconsumer.testing import ExistingCluster
from tests.bench import cases, regressions
from tests.bench.against.rows import run as run_against
from tests.bench.auditing import run as run_auditing
from tests.bench.group import run as run_group
from tests.bench.options import ValueOfAgainstError, frameworks, parser
from tests.bench.overhead import run as run_overhead
from tests.bench.stage import SMOKE, Sizes, Stage
from tests.bench.worker import run as run_worker
from tests.harness.brokers import choice

# Its targets are a few hundredths from 1.
_SPARK_ROUNDS = 7


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; only ``regressions`` judges the figures by its exit status."""
    made = parser()
    options = made.parse_args(arguments)
    try:
        _check(options)
        sizes = SMOKE if options.smoke else Sizes()
        if options.benchmark == "spark" and not options.smoke:
            sizes = evolve(sizes, rounds=_SPARK_ROUNDS)
        if options.rounds is not None:
            sizes = evolve(sizes, rounds=options.rounds)
        with _broker(options) as broker:
            stage = Stage(broker=broker, sizes=sizes)
            result = _BENCHMARKS[options.benchmark](stage, options)
    except ValueOfAgainstError as error:
        made.error(f"--against: {error}")
    text = json.dumps(result, indent=1)
    if options.json is None:
        sys.stdout.write(text + "\n")
    else:
        options.json.write_text(text + "\n", encoding="utf-8")
    return int(result.get("status", 0))


def _check(options: argparse.Namespace) -> None:
    # before a broker is started
    if options.benchmark == "worker":
        frameworks(options.against)
    elif options.benchmark == "regressions":
        regressions.check_commit(options.against)


def _worker(stage: Stage, options: argparse.Namespace) -> dict[str, object]:
    others = frameworks(options.against)
    if not others:
        return run_worker(stage, options.rows, smoke=options.smoke)
    return run_against(
        stage, others, options.rows, folder=options.venvs, smoke=options.smoke
    )


def _spark(stage: Stage, options: argparse.Namespace) -> dict[str, object]:
    spark = importlib.import_module("tests.bench.spark")  # the extra "spark"
    return dict(spark.run(stage, options.only_spark, smoke=options.smoke))


def _throughput(stage: Stage, options: argparse.Namespace) -> dict[str, object]:
    # Only here: it needs the extra "bench".
    throughput = importlib.import_module("tests.bench.throughput")
    picture = importlib.import_module("tests.bench.picture")
    chosen, modes = cases.DEFAULT, cases.MODES
    if options.smoke:
        chosen, modes = cases.SMOKE, (cases.POLL_500, cases.ITERATION)
    elif options.full:
        chosen = cases.everything()
    elif options.targets:
        chosen = cases.TARGETS
    result, readings = throughput.run(stage, chosen, modes, smoke=options.smoke)
    if options.svg is not None:
        note = picture.note(result)
        text = picture.drawn(readings, chosen[0], note)
        options.svg.write_text(text, encoding="utf-8")
    return dict(result)


def _trickle(stage: Stage, options: argparse.Namespace) -> dict[str, object]:
    trickle = importlib.import_module("tests.bench.trickle")  # the extra "bench"
    if not stage.broker.is_real and not options.smoke:
        message = (
            "trickle needs Apache Kafka (--kafka=java or --bootstrap): the "
            "embedded broker answers a waiting request when its time is over, and not "
            "when a record comes"
        )
        raise SystemExit(message)
    return dict(trickle.run(stage, smoke=options.smoke))


def _broker(options: argparse.Namespace) -> Any:  # noqa: ANN401 - any kind
    if options.bootstrap is not None:
        return contextlib.nullcontext(ExistingCluster(options.bootstrap))
    return choice.start(choice.choose(options.kafka).kind)


_BENCHMARKS: dict[str, Callable[[Stage, argparse.Namespace], dict[str, Any]]] = {
    "overhead": lambda on, of: run_overhead(on, of.only, smoke=of.smoke),
    "throughput": _throughput,
    "worker": _worker,
    "group": lambda on, of: run_group(on, of.only_group, smoke=of.smoke),
    "spark": _spark,
    "trickle": _trickle,
    "auditing": lambda on, of: run_auditing(on, of.only_auditing, smoke=of.smoke),
    "regressions": lambda on, of: regressions.run(
        on, of.against, of.only_regressions, smoke=of.smoke
    ),
}

if __name__ == "__main__":
    sys.exit(main())
