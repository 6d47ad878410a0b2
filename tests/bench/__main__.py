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
from pathlib import Path
from typing import Any

from attrs import evolve

from safeconsumer.testing import ExistingCluster
from tests.bench import cases
from tests.bench.against.rows import ROWS as AGAINST_ROWS
from tests.bench.against.rows import run as run_against
from tests.bench.against.venvs import PINNED
from tests.bench.auditing import ROWS as AUDIT_ROWS
from tests.bench.auditing import run as run_auditing
from tests.bench.group import ROWS as GROUP_ROWS
from tests.bench.group import run as run_group
from tests.bench.overhead import ROWS
from tests.bench.overhead import run as run_overhead
from tests.bench.stage import SMOKE, Sizes, Stage
from tests.bench.worker import ROWS as WORKER_ROWS
from tests.bench.worker import run as run_worker
from tests.brokers import choice


def main(arguments: list[str] | None = None) -> int:
    """
    Measure and print; the exit status does not judge the figures.
    """
    options = _parser().parse_args(arguments)
    sizes = SMOKE if options.smoke else Sizes()
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


def _frameworks(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    unknown = set(names) - PINNED.keys()
    if unknown:
        message = f"{', '.join(sorted(unknown))}; known are {', '.join(PINNED)}"
        raise argparse.ArgumentTypeError(message)
    return names


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument(
        "benchmark",
        choices=["overhead", "throughput", "worker", "group", "spark", "auditing"],
    )
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="a running broker")
    parser.add_argument(
        "--kafka",
        default="auto",
        choices=["auto", *choice.Kind],
        help="the broker to start, as in the test suite",
    )
    parser.add_argument(
        "--rounds", type=int, help="how many sets of fresh processes per row"
    )
    parser.add_argument(
        "--smoke", action="store_true", help="run everything tiny; figures mean nothing"
    )
    parser.add_argument("--json", type=Path, help="write to this file, not to stdout")
    overhead = parser.add_argument_group("overhead")
    overhead.add_argument("--only", nargs="+", default=(), choices=list(ROWS))
    worker = parser.add_argument_group("worker")
    worker.add_argument(
        "--rows", nargs="+", default=(), choices=[*WORKER_ROWS, *AGAINST_ROWS]
    )
    worker.add_argument(
        "--against",
        type=_frameworks,
        default=(),
        metavar="NAME,NAME",
        help=f"compare with these instead, on a real broker: {', '.join(PINNED)}",
    )
    worker.add_argument(
        "--venvs",
        type=Path,
        default=Path.home() / ".cache" / "safeconsumer-bench",
        help="where the others are installed, once, each by itself",
    )
    group = parser.add_argument_group("group")
    group.add_argument("--only-group", nargs="+", default=(), choices=list(GROUP_ROWS))
    spark = parser.add_argument_group("spark")
    spark.add_argument("--only-spark", nargs="+", default=(), metavar="ROW")
    audit = parser.add_argument_group("auditing")
    audit.add_argument(
        "--only-auditing", nargs="+", default=(), choices=list(AUDIT_ROWS)
    )
    throughput = parser.add_argument_group("throughput")
    throughput.add_argument(
        "--targets", action="store_true", help="only the two cases that have targets"
    )
    throughput.add_argument(
        "--full", action="store_true", help="all combinations, for hours"
    )
    throughput.add_argument(
        "--svg", type=Path, help="draw the first case into this file"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
