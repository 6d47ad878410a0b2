"""Runs tests in a copy of the checkout in which a fault can be planted."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

from attrs import frozen

ROOT = Path(__file__).parents[2]
COPIED = (
    *("safeconsumer", "tests", "docs", "design"),
    *("pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"),
)
# pytest's exit status if no test was selected.
_NONE_RAN = 5
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/\S+?::.*?)(?: - .*)?$", re.MULTILINE)


@frozen
class Result:
    """
    The outcome of a pytest run.

    Attributes:
        failed: the ids of the tests that failed.
        error: the reason why pytest could not complete its run; empty if pytest
            completed it.
        hangs: whether pytest was still running at the time limit.
    """

    failed: tuple[str, ...] = ()
    error: str = ""
    hangs: bool = False


class Copy:
    """A copy of the checkout that one thread uses; any thread may call :meth:`end`."""

    def __init__(self, folder):
        self._folder, self._temporary = folder / "checkout", folder / "tmp"
        self._process = None
        self._lock = threading.Lock()
        self._is_ended = False
        self._planted = 0
        # The temporary folder is beside the copy, not in it: if a test starts another
        # pytest in a folder inside the copy, that pytest would read the copy's
        # settings.
        for one in (self._folder, self._temporary):
            one.mkdir(parents=True)
        for name in COPIED:
            _copy(ROOT / name, self._folder / name)

    def read(self, file):
        return (self._folder / "safeconsumer" / file).read_text(encoding="utf-8")

    def write(self, file, text):
        path = self._folder / "safeconsumer" / file
        path.write_text(text, encoding="utf-8")
        # The time must change, because Python reuses a file's bytecode if the file's
        # size and time have not changed.
        self._planted += 1
        os.utime(path, (self._planted, self._planted))

    def run(self, tests, limit, *options):
        """Run tests for at most ``limit`` seconds; kill the processes that they started."""
        process = self._start([*tests, *options])
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            return Result(hangs=True)
        finally:
            _kill(process)
        if process.returncode == _NONE_RAN and "-m" not in options:
            # The default options in pyproject.toml deselect nightly tests, so clear the
            # option ``-m``.
            return self.run(tests, limit, "-m", "", *options)
        failed = tuple(dict.fromkeys(_FAILED.findall(output)))
        has_ended = process.returncode == 0 or (process.returncode == 1 and failed)
        error = "" if has_ended else output[-2000:] or "pytest was killed"
        return Result(failed, error)

    def end(self):
        """Kill the running tests, and do not let any more tests start."""
        with self._lock:
            self._is_ended = True
            if self._process is not None and self._process.returncode is None:
                _kill(self._process)

    def _start(self, arguments):
        environment = {
            **os.environ,
            "PYTHONPATH": str(self._folder),
            "TMPDIR": str(self._temporary),
            "PYTHONHASHSEED": "0",
            "COLUMNS": "1000",  # otherwise pytest truncates the lines
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else each run recompiles
        quiet = ("-q", "--tb=no", "-rfE", "--no-header", "-p", "no:cacheprovider")
        with self._lock:
            if self._is_ended:
                raise KeyboardInterrupt
            self._process = subprocess.Popen(  # noqa: S603 - our own pytest
                [sys.executable, "-m", "pytest", "-n", "0", *quiet, *arguments],
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            return self._process


def _copy(source, target):
    if source.is_dir():
        ignored = shutil.ignore_patterns("__pycache__", ".hypothesis", "generated")
        shutil.copytree(source, target, ignore=ignored)
    elif source.exists():
        shutil.copy2(source, target)


def _kill(process):
    """Kill the process and its children if they are still running."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()
