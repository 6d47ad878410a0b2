"""Builds two versions of the package between which a benchmark can alternate."""

import compileall
import contextlib
import os
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

from tests.bench.figures import tell
from tests.harness.processes import ROOT, ran

_DAY = 24 * 60 * 60


def landed(checkout=ROOT):
    """
    Return the commit with which a benchmark compares the working tree by default.

    On a branch this is the commit at which the branch left origin's main. If there is
    no origin, the local main counts. On main, where a nightly run compares with the day
    before, it is the newest commit that is at least a day older. If all commits are
    younger, it is the parent commit.
    """
    head = _git(checkout, "rev-parse", "HEAD")
    for main in ("origin/main", "main"):
        if _git(checkout, "rev-parse", "--quiet", "--verify", main, check=False):
            left = _git(checkout, "merge-base", "HEAD", main)
            if left != head:
                return left
            break
    day_before = int(_git(checkout, "log", "-1", "--format=%ct")) - _DAY
    before = f"--before={day_before}"
    older = _git(checkout, "rev-list", "-1", "--first-parent", before, "HEAD")
    return older or _git(checkout, "rev-parse", "HEAD~1")


@contextlib.contextmanager
def built(against):
    """
    Build a commit and the working tree; yield each variant's environment variables.

    The variants are ``before`` (the commit), ``now`` and ``now again`` (both the working
    tree); ``now again`` shows how large random differences are. All variants run the
    working tree's benchmarks, but ``before`` imports the package from the commit.

    Raises:
        SystemExit: git does not know the commit, or one of the two versions cannot be
            built.
    """
    commit = against or landed()
    tell(_git(ROOT, "log", "-1", "--format=before: %h, %cs, %s", commit))
    with tempfile.TemporaryDirectory() as made:
        archive, source = Path(made) / "before.tar", Path(made) / "source"
        _git(ROOT, "archive", f"--output={archive}", commit)
        shutil.unpack_archive(archive, source, filter="data")
        before = environment(_installed(source, Path(made) / "before"))
        now = environment(_installed(ROOT, Path(made) / "now"))
        yield {"before": before, "now": now, "now again": now}


def environment(folder):
    """Return variables that make a process import the package from this folder."""
    # Without PYTHONSAFEPATH Python would look for the package in the current folder
    # first.
    return {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "PYTHONSAFEPATH": "1"}


def _installed(source, folder):
    """Build a wheel with compiled code, and unpack it as pip would."""
    wheels = folder.with_suffix(".dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", wheels]
    _output(command, source)
    (wheel,) = wheels.iterdir()
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(folder)
    compileall.compile_dir(folder, quiet=1)
    return folder


def _git(checkout, *arguments, check=True):
    return _output(["git", *arguments], checkout, check=check)


def _output(command, folder, *, check=True):
    done = ran(*command, cwd=folder, timeout=None)
    if check and done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout.strip()
