"""
The frameworks that are compared, each in an environment of its own.

They cannot share one: their clients ask for versions that exclude each other.
"""

import subprocess
import sys
from pathlib import Path

PINNED = {
    "arroyo": "sentry-arroyo==2.48.0",
    "quixstreams": "quixstreams==3.28.1",
    "faststream": "faststream[kafka]==0.7.8",
}


def python_of(framework: str, folder: Path) -> str:
    """
    Return the interpreter that has the framework; install it if it is not there.

    Args:
        framework: a key of :data:`PINNED`, or ``safeconsumer``, which is here.
        folder: where the environments are, and stay.
    """
    if framework not in PINNED:
        return sys.executable
    venv = folder / PINNED[framework]
    python, is_there = venv / "bin" / "python", venv / "installed"
    if not is_there.exists():
        _run(sys.executable, "-m", "venv", "--clear", str(venv))
        _run(str(python), "-m", "pip", "install", "--quiet", PINNED[framework])
        is_there.touch()
    return str(python)


def clients_of(framework: str, folder: Path) -> str:
    """Return the framework's version and that of its client."""
    freeze = _run(python_of(framework, folder), "-m", "pip", "freeze")
    wanted = ("confluent-kafka", "aiokafka", "kafka-python", "crc32c")
    found = [line for line in freeze.splitlines() if line.startswith(wanted)]
    return ", ".join([PINNED.get(framework, framework), *found])


def _run(*command: str) -> str:
    done = subprocess.run(  # noqa: S603 - our own, or pip
        command, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout
