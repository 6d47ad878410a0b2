"""
``python -m tests.bench NAME``: runs a benchmark, and prints its figures as JSON.

``overhead`` compares the safe consumer with the stock client. ``speed`` compares how
fast the clients read and resume, and the latency and CPU that they need for single
records; it takes some 20 minutes. ``worker`` compares a worker with a simple poll loop,
``members`` the members on other clients with the consumers of their libraries, and
``spark`` the Spark source with the official one. ``group`` measures the latency of
group holds, and ``auditing`` measures the audit. ``regressions`` compares this state of
the package with the last state on main. Its exit status is 1 if a figure has become
worse. The other benchmarks never fail because of a figure.
"""

import argparse
import contextlib
import importlib
import json
import os
import sys
from pathlib import Path

from attrs import evolve

from safeconsumer.testing import ExistingCluster
from tests.bench import speed, states
from tests.bench.figures import measured, sentences, tell
from tests.bench.stage import BRIEF, Sizes, Stage
from tests.harness.brokers import choice

# The names of the modules in this folder that have a table ``ROWS``.
BENCHMARKS = (
    *("overhead", "speed", "worker", "regressions", "group"),
    *("members", "spark", "auditing"),
)


def main():
    options = parsed(None)
    # The measured processes need cached bytecode: without it each process would compile
    # our modules again, use 1 MB more memory and start later.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    module = _module(options.benchmark)
    sizes = BRIEF if options.brief else Sizes(rounds=getattr(module, "ROUNDS", 5))
    if options.rounds is not None:
        sizes = evolve(sizes, rounds=options.rounds)
    judges = options.benchmark == "regressions"
    with contextlib.ExitStack() as stack:
        variants = stack.enter_context(states.built(options.against)) if judges else {}
        broker = stack.enter_context(_broker(options.bootstrap, options.kafka))
        stage = Stage(broker=broker, sizes=sizes, states=variants)
        result = measured(stage, module.ROWS, options.only)
        stage.drop_shared()
    text = json.dumps(result, indent=1) + "\n"
    if options.json is None:
        sys.stdout.write(text)
    else:
        options.json.write_text(text, encoding="utf-8")
    if options.write:
        speed.write(result)
    if not judges:
        return 0
    tell("\n".join(sentences(result["figures"])))
    return 0 if all(one["passed"] for one in result["figures"]) else 1


def _module(name):
    return importlib.import_module(f"tests.bench.{name}")


def _broker(bootstrap, kind):
    if bootstrap is not None:
        return contextlib.nullcontext(ExistingCluster(bootstrap))
    return choice.start(choice.choose(kind))


def parsed(arguments):
    """Parse a command line, by default this process's; exit with a message on an error."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.against and options.benchmark != "regressions":
        parser.error("--against: only regressions compares two states")
    whole = ("speed", "java", None, False, ())
    how = options.benchmark, options.kafka, options.bootstrap, options.brief
    if options.write and (*how, tuple(options.only)) != whole:
        parser.error("--write: the table is of a whole run of speed --kafka=java")
    if unknown := set(options.only) - _module(options.benchmark).ROWS.keys():
        parser.error(f"--only: {options.benchmark} has no {', '.join(sorted(unknown))}")
    return options


def _parser():
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("benchmark", choices=BENCHMARKS)
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="a running broker")
    parser.add_argument(
        "--kafka",
        default="java",
        choices=[*choice.Kind],
        help="the broker to start, as in the test suite",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        choices=range(1, 1000),
        metavar="N",
        help="how many sets of fresh processes per row",
    )
    parser.add_argument(
        "--brief",
        action="store_true",
        help="only try whether it runs; figures mean nothing",
    )
    parser.add_argument("--json", type=Path, help="write to this file, not to stdout")
    rows = "; ".join(f"{one}: {', '.join(_module(one).ROWS)}" for one in BENCHMARKS)
    parser.add_argument(
        "--only", nargs="+", default=(), metavar="ROW", help=f"only these; {rows}"
    )
    parser.add_argument(
        "--against",
        metavar="COMMIT",
        help="regressions: the state to compare the working tree with (default: where "
        "it left origin's main, or main; for a commit of main itself the newest one "
        "before it that is older by a day, or its parent)",
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="speed --kafka=java: write the table of speed into the pages",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
