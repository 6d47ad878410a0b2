"""The options of ``python -m tests.bench``."""

import argparse
from pathlib import Path

from tests.bench import auditing, group, overhead, regressions, worker
from tests.harness.brokers import choice

# The rows of each; "spark" has its own, which need the extra of that name.
ROWS = {
    "overhead": overhead.ROWS,
    "throughput": {},
    "trickle": {},
    "worker": worker.ROWS,
    "group": group.ROWS,
    "auditing": auditing.ROWS,
    "regressions": regressions.ROWS,
    "spark": dict.fromkeys(
        (
            *("read-100", "read-100-lz4", "read-1000", "read-1000-lz4"),
            *("defaults", "small", "held"),
        )
    ),
}


def parser() -> argparse.ArgumentParser:
    """Make the parser."""
    made = argparse.ArgumentParser(prog="python -m tests.bench")
    made.add_argument("benchmark", choices=list(ROWS))
    made.add_argument("--bootstrap", metavar="HOST:PORT", help="a running broker")
    made.add_argument(
        "--kafka",
        default="auto",
        choices=["auto", *choice.Kind],
        help="the broker to start, as in the test suite",
    )
    made.add_argument(
        "--rounds", type=_rounds, help="how many sets of fresh processes per row"
    )
    made.add_argument("--json", type=Path, help="write to this file, not to stdout")
    named = "; ".join(
        f"{name}: {', '.join(rows)}" for name, rows in ROWS.items() if rows
    )
    made.add_argument(
        "--only", nargs="+", default=(), metavar="ROW", help=f"only these; {named}"
    )
    made.add_argument(
        "--against", default="", metavar="COMMIT", help="of regressions: with which one"
    )
    made.add_argument("--svg", type=Path, help="of throughput: draw it into this file")
    return made


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """Return the options, after what belongs together was looked at."""
    made = parser()
    options = made.parse_args(arguments)
    unknown = set(options.only) - set(ROWS[options.benchmark])
    if unknown:
        made.error(f"--only: {options.benchmark} has no {', '.join(sorted(unknown))}")
    if options.benchmark == "regressions":
        try:
            regressions.check_commit(options.against)
        except regressions.ValueOfAgainstError as error:
            made.error(f"--against: {error}")
    return options


def _rounds(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        message = f"a whole number from 1, not {text!r}"
        raise argparse.ArgumentTypeError(message)
    return int(text)
