"""
Defects of others, shown by scripts: ``python -m tests.system.upstream [NAME...]``.

Prints for each what was seen, with the version it was seen on; "not shown" may mean
that it was repaired. ``arroyo_drops`` needs ``pip install sentry-arroyo``.
"""

import argparse
import importlib
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version

SCRIPTS = {
    "pauses_end": "kafka-python",
    "forgotten_join": "kafka-python",
    "starvation": "kafka-python",
    "endless_poll": "kafka-python",
    "fenced": "kafka-python",
    "no_metadata": "kafka-python",
    "unsubscribe": "kafka-python",
    "logged_password": "kafka-python",
    "auto_create": "kafka-python",
    "cut_metadata": "kafka-python",
    "missed_generation": "kafka-python",
    "lost_commit": "kafka-python",
    "arroyo_drops": "sentry-arroyo",
}

_PATIENCE = 120


def main() -> int:
    """Return 0 if everything that was asked for was shown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*SCRIPTS, []], default=[])
    parser.add_argument("--here", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        said = importlib.import_module(f"tests.system.upstream.{given.here}").shown()
        print(said or "not shown")
        return 0 if said else 1
    return max(_shown(name) for name in given.names or SCRIPTS)


def _shown(name: str) -> int:
    try:
        of = f"{SCRIPTS[name]} {version(SCRIPTS[name])}"
    except PackageNotFoundError:
        print(f"{name}: pip install {SCRIPTS[name]}", flush=True)
        return 1
    program = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "tests.system.upstream",
        "--here",
        name,
    ]
    try:
        done = subprocess.run(  # noqa: S603 - our own program
            program, capture_output=True, text=True, check=False, timeout=_PATIENCE
        )
    except subprocess.TimeoutExpired:
        print(f"{name} ({of}): no end after {_PATIENCE} s", flush=True)
        return 1
    lines = (done.stdout.strip() or done.stderr.strip() or "nothing").splitlines()
    print(f"{name} ({of}): {lines[-1]}", flush=True)
    return min(1, abs(done.returncode))


if __name__ == "__main__":
    sys.exit(main())
