"""
``python -m tests.bench overhead | throughput | worker | group | spark | auditing``.

Figures, as JSON on stdout. ``overhead`` tells what safety costs over the stock client,
``throughput`` how fast all clients read, ``worker`` what a worker costs over a plain
poll loop, ``group`` how soon a whole group obeys, ``spark`` how the Spark source stands
beside the official one, ``auditing`` how fast journals are judged.
"""

import argparse
import contextlib
import importlib
import json
import sys
from typing import Any

from attrs import evolve

from safeconsumer.testing import ExistingCluster
from tests.bench import cases
from tests.bench.against.rows import run as run_against
from tests.bench.auditing import run as run_auditing
from tests.bench.group import run as run_group
from tests.bench.options import parser
from tests.bench.overhead import run as run_overhead
from tests.bench.stage import SMOKE, Sizes, Stage
from tests.bench.worker import run as run_worker
from tests.harness.brokers import choice

# Its targets are a few hundredths from 1.
_SPARK_ROUNDS = 7


def main(arguments: list[str] | None = None) -> int:
    """
    Measure and print; the exit status does not judge the figures.
    """
    options = parser().parse_args(arguments)
    sizes = SMOKE if options.smoke else Sizes()
    if options.benchmark == "spark" and not options.smoke:
        sizes = evolve(sizes, rounds=_SPARK_ROUNDS)
    if options.rounds is not None:
        sizes = evolve(sizes, rounds=options.rounds)
    with _broker(options) as broker:
        stage = Stage(broker=broker, sizes=sizes)
        if options.benchmark == "overhead":
            result = run_overhead(stage, options.only, smoke=options.smoke)
        elif options.benchmark == "worker" and options.against:
            result = run_against(
                stage,
                options.against,
                options.rows,
                folder=options.venvs,
                smoke=options.smoke,
            )
        elif options.benchmark == "worker":
            result = run_worker(stage, options.rows, smoke=options.smoke)
        elif options.benchmark == "group":
            result = run_group(stage, options.only_group, smoke=options.smoke)
        elif options.benchmark == "auditing":
            result = run_auditing(stage, options.only_auditing, smoke=options.smoke)
        elif options.benchmark == "spark":
            spark = importlib.import_module("tests.bench.spark")  # the extra "spark"
            result = spark.run(stage, options.only_spark, smoke=options.smoke)
        else:
            result = _throughput(stage, options)
    text = json.dumps(result, indent=1)
    if options.json is None:
        sys.stdout.write(text + "\n")
    else:
        options.json.write_text(text + "\n", encoding="utf-8")
    return 0


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


def _broker(options: argparse.Namespace) -> Any:  # noqa: ANN401 - any kind
    if options.bootstrap is not None:
        return contextlib.nullcontext(ExistingCluster(options.bootstrap))
    return choice.start(choice.choose(options.kafka).kind)


if __name__ == "__main__":
    sys.exit(main())
