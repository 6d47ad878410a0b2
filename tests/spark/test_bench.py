"""
The benchmark of the Spark source runs, whatever it measures.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).parents[2]
_ROWS = ["read-1000-lz4"]
_TIMEOUT = 240.0

pytestmark = [
    pytest.mark.spark,
    pytest.mark.real_broker,
    pytest.mark.timeout(_TIMEOUT + 30),
]


def test_rows_are_measured_and_reported_as_json(
    kafka_broker: Any,  # noqa: ANN401 - any real one
    tmp_path: Path,
) -> None:
    """
    A small run of one row gives its figures; it has a session of its own.
    """
    path = tmp_path / "figures.json"
    bootstrap = ",".join(kafka_broker.client_config["bootstrap_servers"])
    command = [sys.executable, "-m", "tests.bench", "spark", "--smoke"]
    command += ["--bootstrap", bootstrap, "--json", str(path)]
    done = subprocess.run(  # noqa: S603 - our own module
        [*command, "--only-spark", *_ROWS],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(path.read_text(encoding="utf-8"))
    assert list(dict.fromkeys(one["row"] for one in result["figures"])) == _ROWS
    assert all(one["measured"] > 0 for one in result["figures"])
