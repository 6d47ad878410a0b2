"""A virtual environment for each client, made once per user, and what is started in it."""

import hashlib
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from safeconsumer.testing.cases.process import Launch
from tests.harness.brokers.jars import cache_folder
from tests.harness.conformance.clients import Client

_ROOT = Path(__file__).parents[3]
_TIMEOUT = 300.0


def launch_of(client: Client) -> Launch:
    """Return how a process with this client is started."""
    return Launch(
        python=python_of(client),
        adapter=client.adapter,
        arguments=client.arguments,
        path=(str(_ROOT),),
    )


def python_of(client: Client) -> Path:
    """Return the interpreter that has the client; the first call installs it with pip."""
    if client.needs is None:
        return Path(sys.executable)
    folder = _folder(client.needs)
    if not folder.is_dir():
        _make(folder, client.needs)
    return folder / "bin" / "python"


def _folder(requirement: str) -> Path:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256(f"{requirement} {version}".encode()).hexdigest()[:12]
    name, _, _ = requirement.partition("==")
    return cache_folder() / "clients" / f"{name}-{digest}"


def _make(folder: Path, requirement: str) -> None:
    # Under its final name only once it is complete: its scripts are not used, so that
    # it may move.
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made = Path(scratch) / "environment"
        venv.create(made, with_pip=True)
        done = subprocess.run(  # noqa: S603 - our own command line
            [made / "bin" / "python", "-m", "pip", "install", "-q", requirement],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
        if done.returncode:
            message = f"pip could not install {requirement}:\n{done.stdout[-4000:]}"
            raise RuntimeError(message)
        made.rename(folder)
