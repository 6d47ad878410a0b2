"""What ``.ci/run`` leaves behind, with every program that it calls replaced by a stub."""

import os
import select
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
STUB = """#!/usr/bin/env bash
case "${0##*/} $*" in
    "python3 -m venv"*) mkdir -p "${@: -1}/bin" && cp "$STUBS"/* "${@: -1}/bin" ;;
    pytest*) read -r < "$PREPARING"; exit 1 ;;
esac
"""
BROKERS = """#!/usr/bin/env bash
[ "$1" = start ] || exit 0
echo > "$PREPARING"
sleep 300
"""
PROGRAMS = ["apt-get", "mypy", "pip", "pytest", "python", "python3", "pyenv", "ruff"]
PROGRAMS += [
    "renice",
    "check-jsonschema",
    "lint-imports",
    "safeconsumer",
    "sphinx-build",
    "typos",
]


def program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def test_a_failure_ends_the_preparation_of_brokers(tmp_path: Path) -> None:
    """It went on alone, and started a Docker engine that nothing ended."""
    run, stubs, preparing = (tmp_path / name for name in (".ci/run", "stubs", "pipe"))
    for name in PROGRAMS:
        program(stubs / name, STUB)
    program(tmp_path / ".ci" / "brokers.sh", BROKERS)
    shutil.copy(ROOT / ".ci" / "run", run)
    os.mkfifo(preparing)
    names = {"STUBS": stubs, "PREPARING": preparing, "TMPDIR": tmp_path}
    path = {"PATH": f"{stubs}:{os.environ['PATH']}"}
    ours, its = os.pipe()
    try:
        done = subprocess.run(  # noqa: S603 - our own script
            [run],
            env={**os.environ, **path, **{key: str(one) for key, one in names.items()}},
            pass_fds=[its],
            capture_output=True,
            check=False,
            text=True,
            timeout=100,
        )
        os.close(its)
        ended, _, _ = select.select(
            [ours], [], [], 10
        )  # readable once nobody has `its`
    finally:
        os.close(ours)
    assert (done.returncode, "the embedded broker" in done.stdout) == (1, True)
    assert ended, "a process is left"
    assert not list(tmp_path.glob("safeconsumer-ci.*"))
