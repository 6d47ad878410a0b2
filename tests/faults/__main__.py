"""
``python -m tests.faults [PACKAGE ...]``: plants faults, and names tests that kill them.

A fault is one realistic change to the package. The program plants each fault in a copy
of the checkout; it uses two copies in parallel. It runs the tests that the fault's row
names; if none of them fails, it runs all tests of the package. The exit status is 1 in
three cases: All tests pass with a fault whose row does not call it equivalent. The tests
hang, or break for a reason other than the fault. A row no longer matches the code.
"""

import argparse
import queue
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tests.faults import table
from tests.faults.copies import Copy, Result
from tests.faults.table import UnplantableError

COPIES = 2


def main():
    """Plant the chosen faults and test each; return the exit status."""
    options = _options()
    faults = table.faults(options.packages)
    if options.only:
        faults = [one for one in faults if one.id in options.only]
    # a shell may have made the program ignore these signals
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        copies = [Copy(Path(folder, str(number))) for number in range(COPIES)]
        bad = (
            _unplantable(copies[0], faults)
            or _failing(copies[0], faults)
            or _played(copies, faults, options)
        )
    seconds = time.monotonic() - began
    _print(f"{len(faults)} faults, {len(bad)} to look at, {seconds:.0f} s", *bad)
    return 1 if bad else 0


def _unplantable(copy, faults):
    """Return a line for each row that does not match the code."""
    found = []
    for fault in faults:
        try:
            fault.planted(copy.read(fault.file))
        except (UnplantableError, OSError) as error:
            found.append(f"{fault.id} cannot be planted: {error}")
    return found


def _failing(copy, faults):
    """Return the tests that fail without any fault, and so would seem to kill every fault."""
    named = dict.fromkeys(test for fault in faults for test in fault.tests)
    if not named:
        return []
    _print(f"without a fault: {len(named)} files and tests")
    result = copy.run([*named], 3600, "-n", str(COPIES))
    return [
        *(f"{test} fails without a fault" for test in result.failed),
        *([result.error] if result.error else []),
    ]


def _played(copies, faults, options):
    """Test each fault in a copy that is free; return the outcomes that need attention."""
    free = queue.SimpleQueue()
    for copy in copies:
        free.put(copy)

    def play(fault):
        copy = free.get()
        try:
            return _outcome(copy, fault, options)
        finally:
            free.put(copy)

    bad = []
    pool = ThreadPoolExecutor(len(copies))
    try:
        playing = {pool.submit(play, fault): fault for fault in faults}
        for count, future in enumerate(as_completed(playing), 1):
            outcome, is_good = future.result()
            text = f"{playing[future]}: {outcome}"
            _print(f"[{count}/{len(faults)}] {text}")
            bad += [] if is_good else [text]
    finally:
        for copy in copies:
            copy.end()
        pool.shutdown(cancel_futures=True)
    return bad


def _outcome(copy, fault, options):
    """Plant a fault and run its tests; return the outcome and whether it was expected."""
    began = time.monotonic()
    original = copy.read(fault.file)
    copy.write(fault.file, fault.planted(original))
    try:
        named, *suite = _results(copy, fault, options)
    finally:
        copy.write(fault.file, original)
    # The named tests have already passed without a fault, but the package's tests have
    # not, so a failure among them may have another cause.
    unsure = [test for one in suite for test in one.failed if test not in named.failed]
    if unsure and copy.run(unsure, options.limit) != Result():
        suite = [Result(error=f"without the fault they fail, too: {', '.join(unsure)}")]
    text, is_good = _judged(fault, [named, *suite])
    return f"{text} ({time.monotonic() - began:.0f} s)", is_good


def _judged(fault, results):
    killers = ", ".join(dict.fromkeys(test for one in results for test in one.failed))
    if killers and fault.equivalent:
        return f"called EQUIVALENT, but killed by {killers}", False
    if killers:
        return f"killed by {killers}", True
    if any(one.hangs for one in results):
        return ("killed by the time limit" if fault.hangs else "HANGS"), fault.hangs
    if errors := [one.error for one in results if one.error]:
        return f"BREAKS the run of its tests: {errors[0]}", False
    if fault.equivalent:
        return f"EQUIVALENT: {fault.equivalent.strip()}", True
    return "SURVIVES", False


def _results(copy, fault, options):
    """Run the tests that the fault's row names; if they pass, run its package's tests."""
    first = () if options.all else ("-x",)
    result = copy.run(fault.tests, options.limit, *first) if fault.tests else Result()
    yield result
    if options.all or (result == Result() and not fault.equivalent):
        yield copy.run(fault.suite, options.limit, *first)


def _options():
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults",
        description="Plants faults of these packages, and shows which test kills each.",
    )
    packages = ", ".join(table.PACKAGES)
    parser.add_argument(
        "packages", nargs="*", metavar="PACKAGE", help=f"{packages}; by default all"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="ID",
        help="play these, as in a row's id",
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="name every test of the package that kills it",
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=180,
        metavar="SECONDS",
        help="of a run of a fault's tests (default: 180)",
    )
    options = parser.parse_args()
    if unknown := set(options.packages) - set(table.PACKAGES):
        parser.error(f"no packages: {', '.join(sorted(unknown))}")
    options.packages = options.packages or table.PACKAGES
    if unknown := set(options.only) - {
        one.id for one in table.faults(options.packages)
    }:
        parser.error(f"no faults of these packages: {', '.join(sorted(unknown))}")
    return options


def _print(*lines):
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
