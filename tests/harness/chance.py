"""
What is drawn by chance: the same in every run, unless ``--hypothesis-profile=random``.

In a random run Hypothesis draws anew, other draws begin at a seed that is drawn once,
and the end of the report says how to play again what failed: ``--play`` for what
Hypothesis drew, ``--seed`` for all else. What Hypothesis found stays in ``.hypothesis``
and is tried first in the next random run. How rare something is says nothing there, so
tests that judge it, or that look for planted faults, keep the fixed seeds (``FIXED``).
"""

import base64
import os
import random
import re
import shlex
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, __version__, settings
from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase
from hypothesis.internal.conjecture import providers

# Drawn the same in every run, random ones included, and not kept.
FIXED: dict[str, Any] = {"derandomize": True, "database": None}

# Where Hypothesis keeps things; said, because where CI is set it would keep nothing.
_KEPT = Path(
    os.environ.get("HYPOTHESIS_STORAGE_DIRECTORY")
    or Path(__file__).parents[2] / ".hypothesis"
)

settings.register_profile("repeatable", **FIXED, deadline=None)
settings.register_profile(
    "random",
    derandomize=False,
    database=DirectoryBasedExampleDatabase(_KEPT / "examples"),
    deadline=None,
    print_blob=True,
)

_BLOB = re.compile(r"@reproduce_failure\('[^']*', b'([^']*)'\)")


class Played(ExampleDatabase):
    """Knows one example, whatever test asks."""

    def __init__(self, blob: str) -> None:
        super().__init__()
        try:
            kind, *_ = packed = base64.b64decode(blob, validate=True)
            self._example = zlib.decompress(packed[1:]) if kind == 1 else packed[1:]
        except (ValueError, zlib.error) as error:
            msg = f"--play takes what a failed random run has printed, not {blob!r}"
            raise pytest.UsageError(msg) from error

    def fetch(self, key: bytes) -> Iterable[bytes]:
        """Return the example."""
        del key
        return [self._example]

    def save(self, key: bytes, value: bytes) -> None:
        """Keep nothing."""

    def delete(self, key: bytes, value: bytes) -> None:
        """Forget nothing."""


def make_repeatable() -> None:
    """
    Draw the same from now on, whichever tests share the process.

    Hypothesis mixes in constants that it reads in the modules loaded so far: with
    several workers that is another set in each run, so a "derandomized" test differs.
    """
    settings.load_profile("repeatable")
    # Hypothesis has no setting for it. A name that moves is an AttributeError here.
    providers.HypothesisProvider._local_constants  # noqa: B018
    providers.HypothesisProvider._local_constants = providers.Constants()  # type: ignore[assignment]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--seed`` and ``--play``; ``tests/conftest.py`` calls the hook."""
    group = parser.getgroup("chance")
    group.addoption(
        "--seed",
        type=int,
        default=None,
        metavar="N",
        help="where the draws begin that are not Hypothesis' (default: 0; with "
        "--hypothesis-profile=random one that is drawn and shown)",
    )
    group.addoption(
        "--play",
        default=None,
        metavar="BLOB",
        help="play what Hypothesis drew when a random run failed, and nothing else",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose where draws begin, once for all workers; before Hypothesis takes its profile."""
    option = config.option
    if option.play is not None:
        option.hypothesis_profile = "random"
        settings.register_profile(
            "random",
            settings.get_profile("random"),
            database=Played(option.play),
            phases=[Phase.reuse],
        )
    if option.seed is None:  # xdist hands the options on to its workers
        is_random = option.hypothesis_profile == "random" and option.play is None
        option.seed = random.randrange(1, 2**32) if is_random else 0  # noqa: S311


@pytest.fixture(scope="session")
def first_seed(pytestconfig: pytest.Config) -> int:
    """Return where draws begin that are not Hypothesis': 0, in a random run another."""
    seed: int = pytestconfig.option.seed
    return seed


def commands(config: pytest.Config, failed: Iterable[Any]) -> Iterator[str]:
    """Yield a command line for each failed test that plays it again."""
    hashes = os.environ.get("PYTHONHASHSEED", "")
    seed = config.option.seed
    for report in failed:
        parts = [f"PYTHONHASHSEED={hashes}"] if hashes.isdecimal() else []
        parts += ["pytest", "-n", "0", f"--kafka={config.getoption('kafka', 'auto')}"]
        parts += [f"--seed={seed}"] if seed else []
        blob = _BLOB.search(report.longreprtext)
        parts += [f"--play={blob[1]}"] if blob else []
        yield shlex.join([*parts, report.nodeid])


def pytest_terminal_summary(
    terminalreporter: "pytest.TerminalReporter", config: pytest.Config
) -> None:
    """Say how to play again what failed in a random run."""
    stats = terminalreporter.stats
    failed = [*stats.get("failed", ()), *stats.get("error", ())]
    if not failed or not config.option.seed:
        return
    terminalreporter.section(f"to play it again, with Hypothesis {__version__}")
    for line in commands(config, failed):
        terminalreporter.write_line(line)
