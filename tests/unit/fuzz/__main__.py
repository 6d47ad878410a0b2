"""
Hostile bytes for readers: ``python -m tests.unit.fuzz --target all --executions N``.

Coverage-guided; needs ``pip install -e '.[fuzz]'``. An input that fails is
kept, and ``--replay FILE`` feeds it again. Without the fuzzer the same targets are run
by Hypothesis in ``tests/unit/fuzz/test_targets.py``.
"""

import argparse
import importlib.util
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.unit.fuzz.targets import BY_NAME

_COVERED = re.compile(r"cov: (\d+) ft: (\d+)")


def main() -> int:
    """Return 0 if no target failed; one line says how each ended."""
    given = _arguments()
    if given.replay is not None:
        BY_NAME[given.target].feed(given.replay.read_bytes())
        print(f"{given.target}: {given.replay} does not fail")
        return 0
    if importlib.util.find_spec("atheris") is None:
        print("the fuzzer is missing: pip install -e '.[fuzz]'", file=sys.stderr)
        return 2
    names = list(BY_NAME) if given.target == "all" else [given.target]
    ends = [_fuzzed(name, given) for name in names]
    return max(ends)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="all", choices=["all", *BY_NAME])
    parser.add_argument("--executions", type=int, default=10_000, help="per target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder for failing inputs")
    parser.add_argument("--replay", type=Path, help="feed this file to --target")
    return parser.parse_args()


def _fuzzed(name: str, given: argparse.Namespace) -> int:
    keep = given.keep or Path(tempfile.mkdtemp(prefix="safeconsumer-fuzz-"))
    began = time.monotonic()
    program = [sys.executable, "-m", "tests.unit.fuzz.engine", name]
    options = ["--executions", str(given.executions), "--seed", str(given.seed)]
    done = subprocess.run(  # noqa: S603 - our own program
        [*program, *options, "--folder", str(keep / name)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    seconds = time.monotonic() - began
    covered = _COVERED.findall(done.stdout)
    said = f"{covered[-1][0]} edges, {covered[-1][1]} features" if covered else "-"
    how = "passed" if done.returncode == 0 else "FAILED"
    line = f"{name}: {how}, {given.executions} executions, {said}, {seconds:.1f} s"
    print(line, flush=True)
    if done.returncode:
        print(f"{done.stdout[-6000:]}\ninputs: {keep / name}", flush=True)
    return min(done.returncode, 1)


if __name__ == "__main__":
    sys.exit(main())
