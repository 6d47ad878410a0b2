"""
Explores pairs of operations: ``python -m tests.system.explorer``.

Without options all pairs run at a sample of their places, as in CI; ``--all`` tries
every place of each, which takes hours.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence

from tests.harness.explorer.engine import Exploration, Explorer, Wrong, every, sample
from tests.system.explorer.pairs import INSIDE, UPSTREAM, Pair, every_pair, named
from tests.system.explorer.subject import rehearsed

SEED = "explorer"
PLACES = 8
"""
So many places of each pair are tried in CI.
"""

_COLUMNS = ("places", "tried", "blocked", "seconds", "wrong")
_HEAD = f"{'pair':<58} " + " ".join(f"{one:>7}" for one in _COLUMNS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return 1 if something is wrong."""
    options = _parser().parse_args(arguments)
    try:
        pairs = _chosen(options)
    except LookupError as error:
        print(error.args[0], file=sys.stderr)
        return 2
    if options.list:
        for pair in pairs:
            print(pair.name)
        return 0
    if options.processes > 1 and len(pairs) > 1:
        return _in_processes(options)
    return _explore(pairs[options.part :: options.parts], options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.system.explorer", description=__doc__
    )
    add = parser.add_argument
    add("--list", action="store_true", help="list the pairs and end")
    add("--pair", action="append", metavar="'A x B'", help="this pair, at every place")
    add("--of", metavar="OPERATION", help="only pairs with this operation")
    add("--all", action="store_true", help="try every place")
    add("--places", type=int, default=PLACES, help="how many places of each pair")
    add("--seed", default=SEED, help="which places are chosen")
    add("--upstream", action="store_true", help="kafka-python's lines are places, too")
    add("--opcodes", action="store_true", help="places are instructions, not lines")
    add(
        "--stacks",
        action="store_true",
        help="show where both stood, for each wrong run",
    )
    add("--only-wrong", action="store_true", help="show no pair that is clean")
    add("--stop-at", type=int, metavar="N", help="leave a pair after N wrong runs")
    add("--processes", type=int, default=os.cpu_count() or 1, help="how many at once")
    add("--part", type=int, default=0, help=argparse.SUPPRESS)
    add("--parts", type=int, default=1, help=argparse.SUPPRESS)
    return parser


def _chosen(options: argparse.Namespace) -> list[Pair]:
    if options.pair:
        return [named(name) for name in options.pair]
    pairs = every_pair()
    if options.of:
        pairs = [one for one in pairs if options.of in {one.a.name, one.b.name}]
    return pairs


def _explore(pairs: Iterable[Pair], options: argparse.Namespace) -> int:
    began, wrong, tried = time.monotonic(), 0, 0
    if options.part == 0:
        print(_HEAD)
    inside = (*INSIDE, *UPSTREAM) if options.upstream else INSIDE
    with rehearsed(), Explorer(inside, by_opcode=options.opcodes) as explorer:
        for pair in pairs:
            is_whole = options.all or options.pair
            found = pair.explore(
                explorer,
                places=every
                if is_whole
                else sample(options.places, f"{options.seed} {pair.name}"),
                stop_at=options.stop_at,
            )
            tried += found.tried
            wrong += bool(found.wrong)
            if found.wrong or not options.only_wrong:
                print(
                    *_told(pair, found, has_stacks=options.stacks), sep="\n", flush=True
                )
    seconds = time.monotonic() - began
    print(f"{tried} places in {seconds:.0f} s, {wrong} pairs wrong", flush=True)
    return int(bool(wrong))


def _told(pair: Pair, found: Exploration, *, has_stacks: bool) -> Iterator[str]:
    yield (
        f"{pair.name:<58} {found.places:>7} {found.tried:>7} {found.blocked:>7} "
        f"{found.seconds:>7.2f} {len(found.wrong):>7}"
    )
    if found.wrong and not has_stacks:
        again = f"python -m tests.system.explorer --pair '{pair.name}' --stacks"
        yield f"    again: {again}"
    shown: list[Wrong] = (
        found.wrong if has_stacks else found.wrong[:1] + found.wrong[1:][-1:]
    )
    for one in shown:
        yield "    " + str(one).replace("\n", "\n    ")
        if has_stacks:
            yield "    " + one.stacks().replace("\n", "\n    ")


def _in_processes(options: argparse.Namespace) -> int:
    running = [
        subprocess.Popen(  # noqa: S603 - this program again
            [
                sys.executable,
                *("-m", "tests.system.explorer", *sys.argv[1:], "--processes=1"),
                *(f"--part={part}", f"--parts={options.processes}"),
            ]
        )
        for part in range(options.processes)
    ]
    return max(one.wait() for one in running)


if __name__ == "__main__":
    sys.exit(main())
