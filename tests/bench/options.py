"""The options of ``python -m tests.bench``."""

import argparse
from pathlib import Path

from tests.bench import speed
from tests.harness.brokers import choice

# The rows of each, as its module has them; said here where those need an extra.
ROWS = {
    "overhead": (*("poll", "iteration", "many-holds", "ten-thousand", "import"),),
    "speed": tuple(speed.ROWS),
    "worker": ("no-op", "processes", "waiting", "memory"),
    "regressions": (
        *("5000", "500", "iteration", "alone", "deserializer", "1KB-lz4"),
        *("holds", "import", "no-op", "resident"),
    ),
    "group": ("obeying", "starting", "reporting"),
    "members": (
        *("poll", "poll-held", "consume", "consume-held"),
        *("getone", "getone-held", "getmany", "getmany-held"),
    ),
    "spark": (
        *("read-100", "read-100-lz4", "read-1000", "read-1000-lz4"),
        *("defaults", "small", "python", "python-small"),
    ),
    "auditing": ("polled", "iterated"),
}


def parsed(arguments):
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.against and options.benchmark != "regressions":
        parser.error("--against: only regressions compares two states")
    whole = ("speed", "java", None, False, ())
    how = options.benchmark, options.kafka, options.bootstrap, options.brief
    if options.write and (*how, tuple(options.only)) != whole:
        parser.error("--write: the table is of a whole run of speed --kafka=java")
    unknown = set(options.only) - set(ROWS[options.benchmark])
    if unknown:
        parser.error(f"--only: {options.benchmark} has no {', '.join(sorted(unknown))}")
    return options


def _parser():
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("benchmark", choices=list(ROWS))
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
    named = "; ".join(
        f"{name}: {', '.join(rows)}" for name, rows in ROWS.items() if rows
    )
    parser.add_argument(
        "--only", nargs="+", default=(), metavar="ROW", help=f"only these; {named}"
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
