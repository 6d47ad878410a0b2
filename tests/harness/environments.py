"""Makes virtual environments with other packages, and caches them for later runs."""

import hashlib
import sys
import tempfile
import venv
from pathlib import Path

from tests.harness.brokers.jars import cache_folder, must_run

_TIMEOUT = 300.0


def python_of(requirement):
    """Return an interpreter that has these packages; the first call installs them."""
    folder = _folder(requirement)
    if not folder.is_dir():
        _make(folder, requirement)
    return folder / "bin" / "python"


def packages_of(requirement):
    """Return the folder with these packages, for use in another interpreter's path."""
    (found,) = python_of(requirement).parents[1].glob("lib/python*/site-packages")
    return found


def _folder(requirement):
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256(f"{requirement} {version}".encode()).hexdigest()[:12]
    name, _, _ = requirement.split(maxsplit=1)[0].partition("==")
    return cache_folder() / "clients" / f"{name}-{digest}"


def _make(folder, requirement):
    # The folder gets its final name only once it is complete. The scripts in the folder
    # contain its old path, but nothing uses these scripts.
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made = Path(scratch) / "environment"
        venv.create(made, with_pip=True)
        install = [made / "bin" / "python", "-m", "pip", "install", "-q"]
        failure = f"pip could not install {requirement}"
        must_run([*install, *requirement.split()], failure, _TIMEOUT)
        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process has created it
                raise
