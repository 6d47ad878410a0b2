"""
``python -m tests.bench NAME``: measures; ``--help`` lists the names.

Figures, as JSON on stdout. ``overhead`` tells what safety costs over the stock client,
``throughput`` how fast all clients read, ``trickle`` how soon, and at which cost,
records are returned that come one by one, ``worker`` what a worker costs over a plain
poll loop, ``group`` how soon a whole group obeys, ``spark`` how the Spark source stands
beside the official one, ``auditing`` how fast journals are judged, and
``regressions --against COMMIT`` what got slower since a commit: its exit status is 0
if nothing did by more than the noise, which each row names, 1 if something did, 3 if
the machine is too noisy to tell.
"""

import argparse
import contextlib
import importlib
import json
import sys
from typing import Any

from attrs import evolve

from safeconsumer.testing import ExistingCluster
from tests.bench import regressions
from tests.bench.figures import measured
from tests.bench.options import ROWS, parsed
from tests.bench.stage import Sizes, Stage
from tests.harness.brokers import choice

# Its targets are a few hundredths from 1.
_SPARK_ROUNDS = 7


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; only ``regressions`` judges the figures by its exit status."""
    options = parsed(arguments)
    sizes = Sizes()
    if options.benchmark == "spark":
        sizes = evolve(sizes, rounds=_SPARK_ROUNDS)
    if options.rounds is not None:
        sizes = evolve(sizes, rounds=options.rounds)
    with _broker(options) as broker:
        result = _measured(Stage(broker=broker, sizes=sizes), options)
    text = json.dumps(result, indent=1)
    if options.json is None:
        sys.stdout.write(text + "\n")
    else:
        options.json.write_text(text + "\n", encoding="utf-8")
    return int(result.get("status", 0))


def _measured(stage: Stage, options: argparse.Namespace) -> dict[str, Any]:
    match options.benchmark:
        case "regressions":
            return regressions.run(stage, options.against, options.only)
        case "throughput":
            return _throughput(stage, options)
        case "trickle":
            return dict(_module("trickle").run(stage))
        case "spark":
            return dict(_module("spark").run(stage, options.only))
        case name:
            return measured(stage, ROWS[name], options.only)


def _throughput(stage: Stage, options: argparse.Namespace) -> dict[str, Any]:
    result, readings = _module("throughput").run(stage)
    if options.svg is not None:
        text = _module("picture").drawn(readings, result)
        options.svg.write_text(text, encoding="utf-8")
    return dict(result)


def _module(name: str) -> Any:  # noqa: ANN401 - a module
    # Only here: it needs an extra.
    return importlib.import_module(f"tests.bench.{name}")


def _broker(options: argparse.Namespace) -> Any:  # noqa: ANN401 - any kind
    if options.bootstrap is not None:
        return contextlib.nullcontext(ExistingCluster(options.bootstrap))
    return choice.start(choice.choose(options.kafka).kind)


if __name__ == "__main__":
    sys.exit(main())
