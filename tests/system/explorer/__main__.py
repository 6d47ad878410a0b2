"""
Explores pairs of operations: ``python -m tests.system.explorer``.

Without options all pairs run at a sample of their places; ``--all`` tries every place of
each, which takes hours.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence

from tests.harness.explorer.engine import Exploration, Explorer, every, sample
from tests.system.explorer.pairs import INSIDE, UPSTREAM, Pair, every_pair, named
from tests.system.explorer.subject import rehearsed

SEED = "explorer"
PLACES = 8
"""
So many places of each pair are tried, unless every place is.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return 1 if something is wrong."""
    options = _parser().parse_args(arguments)
    try:
        pairs = [named(name) for name in options.pair or ()] or every_pair()
    except LookupError as error:
        print(error.args[0], file=sys.stderr)
        return 2
    if options.list:
        print(*(pair.name for pair in pairs), sep="\n")
        return 0
    if options.processes > 1 and len(pairs) > 1:
        return _in_processes(options.processes)
    return _explore(pairs[options.part :: options.parts], options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.system.explorer", description=__doc__
    )
    add = parser.add_argument
    add("--list", action="store_true", help="list the pairs and end")
    add("--pair", action="append", metavar="'A x B'", help="this pair, at every place")
    add("--all", action="store_true", help="try every place")
    add("--places", type=int, default=PLACES, help="how many places of each pair")
    add("--upstream", action="store_true", help="kafka-python's lines are places, too")
    add("--stop-at", type=int, metavar="N", help="leave a pair after N wrong runs")
    add("--processes", type=int, default=os.cpu_count() or 1, help="how many at once")
    add("--part", type=int, default=0, help=argparse.SUPPRESS)
    add("--parts", type=int, default=1, help=argparse.SUPPRESS)
    return parser


def _explore(pairs: Iterable[Pair], options: argparse.Namespace) -> int:
    began, wrong, tried = time.monotonic(), 0, 0
    inside = (*INSIDE, *UPSTREAM) if options.upstream else INSIDE
    with rehearsed(), Explorer(inside) as explorer:
        for pair in pairs:
            is_whole = options.all or options.pair
            places = sample(options.places, f"{SEED} {pair.name}")
            found = pair.explore(
                explorer, places=every if is_whole else places, stop_at=options.stop_at
            )
            tried += found.tried
            wrong += bool(found.wrong)
            if found.wrong or options.pair:
                print(told(pair, found), flush=True)
    seconds = time.monotonic() - began
    print(f"{tried} places in {seconds:.0f} s, {wrong} pairs wrong", flush=True)
    return int(bool(wrong))


def told(pair: Pair, found: Exploration) -> str:
    """Describe what was found: where both stood, in the first wrong run and the last."""
    tried = f"{found.tried} of {found.places} places in {found.seconds:.1f} s"
    wrong = f"B waited at {found.blocked}, {len(found.wrong)} wrong"
    lines = [f"{pair.name}: {tried}, {wrong}"]
    if found.wrong:
        lines.append(f"again: python -m tests.system.explorer --pair '{pair.name}'")
    for one in found.wrong[:1] + found.wrong[1:][-1:]:
        lines += [str(one), one.stacks()]
    return "\n    ".join("\n".join(lines).splitlines())


def _in_processes(processes: int) -> int:
    running = [
        subprocess.Popen(  # noqa: S603 - this program again
            [
                sys.executable,
                *("-m", "tests.system.explorer", *sys.argv[1:], "--processes=1"),
                *(f"--part={part}", f"--parts={processes}"),
            ]
        )
        for part in range(processes)
    ]
    return max(one.wait() for one in running)


if __name__ == "__main__":
    sys.exit(main())
