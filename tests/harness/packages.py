"""Builds the wheel and the sdist, and lists their files."""

import os
import zipfile

from tests.harness.processes import ROOT, ran_python

DECODER = "safeconsumer/_kafka/decoding/_batches.abi3.so"


def build(folder, kind, **environment):
    """Build a wheel or an sdist; return the built file and the build's output."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("GITHUB_")}
    command = ["-m", "hatchling", "build", "-t", kind, "-d", folder]
    env = inherited | environment
    done = ran_python(*command, cwd=ROOT, env=env, timeout=None)
    assert done.returncode == 0, done.stderr
    (built,) = folder.iterdir()
    return built, done.stdout + done.stderr


# Python, a build of the site, and an editable installation create files and folders
# with these names.
MADE = {"__pycache__", "generated"}
COMPILED = ".so"


def files_below(name):
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / name).rglob("*")
        if path.is_file() and MADE.isdisjoint(path.parts) and path.suffix != COMPILED
    }


def package_in(wheel):
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
    return {name for name in names if ".dist-info/" not in name}
