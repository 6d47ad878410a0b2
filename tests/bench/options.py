"""The options of ``python -m tests.bench``, a group for each benchmark."""

import argparse
from collections.abc import Collection
from pathlib import Path

from tests.bench.against.rows import ROWS as AGAINST_ROWS
from tests.bench.against.venvs import PINNED
from tests.bench.auditing import PACKS
from tests.bench.auditing import ROWS as AUDIT_ROWS
from tests.bench.group import ROWS as GROUP_ROWS
from tests.bench.overhead import ROWS
from tests.bench.regressions import ROWS as REGRESSION_ROWS
from tests.bench.regressions import ValueOfAgainstError
from tests.bench.worker import ROWS as WORKER_ROWS
from tests.harness.brokers import choice


def parser() -> argparse.ArgumentParser:
    """Make the parser."""
    made = argparse.ArgumentParser(prog="python -m tests.bench")
    made.add_argument(
        "benchmark",
        choices=[
            "overhead",
            "throughput",
            "worker",
            "group",
            "spark",
            "trickle",
            "auditing",
            "regressions",
        ],
    )
    made.add_argument("--bootstrap", metavar="HOST:PORT", help="a running broker")
    made.add_argument(
        "--kafka",
        default="auto",
        choices=["auto", *choice.Kind],
        help="the broker to start, as in the test suite",
    )
    made.add_argument(
        "--rounds", type=_rounds_of, help="how many sets of fresh processes per row"
    )
    made.add_argument(
        "--smoke", action="store_true", help="run everything tiny; figures mean nothing"
    )
    made.add_argument("--json", type=Path, help="write to this file, not to stdout")
    _rows(made, "overhead", "--only", ROWS)
    _rows(made, "group", "--only-group", GROUP_ROWS)
    _rows(made, "auditing", "--only-auditing", (*AUDIT_ROWS, PACKS))
    _rows(made, "spark", "--only-spark", ())  # its rows need the extra "spark"
    _rows(made, "regressions", "--only-regressions", REGRESSION_ROWS)
    _worker(made.add_argument_group("worker"))
    _throughput(made.add_argument_group("throughput"))
    return made


def _rounds_of(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        message = f"a whole number from 1, not {text!r}"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def _rows(
    made: argparse.ArgumentParser, name: str, option: str, rows: Collection[str]
) -> None:
    made.add_argument_group(name).add_argument(
        option,
        nargs="+",
        default=(),
        choices=list(rows) or None,
        metavar=None if rows else "ROW",
    )


def _worker(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--rows", nargs="+", default=(), choices=[*WORKER_ROWS, *AGAINST_ROWS]
    )
    group.add_argument(
        "--against",
        default="",
        metavar="NAME,NAME",
        help=f"compare with these instead, on a real broker: {', '.join(PINNED)}; "
        "for regressions: the commit to compare with",
    )
    group.add_argument(
        "--venvs",
        type=Path,
        default=Path.home() / ".cache" / "safeconsumer-bench",
        help="where the others are installed, once, each by itself",
    )


def _throughput(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--targets", action="store_true", help="only the two cases that have targets"
    )
    group.add_argument(
        "--full", action="store_true", help="all combinations, for hours"
    )
    group.add_argument("--svg", type=Path, help="draw the first case into this file")


def frameworks(text: str) -> tuple[str, ...]:
    """
    Return the names in the value of ``--against``.

    Raises:
        ValueOfAgainstError: one of them is unknown.
    """
    names = tuple(filter(None, text.split(",")))
    unknown = set(names) - PINNED.keys()
    if unknown:
        message = f"{', '.join(sorted(unknown))}; known are {', '.join(PINNED)}"
        raise ValueOfAgainstError(message)
    return names
