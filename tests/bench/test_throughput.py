"""All clients read, and what they measured is reported, whatever it is."""

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.bench.cases import ITERATION, POLL_500, SMOKE
from tests.bench.trickle import ROWS

_ROOT = Path(__file__).parents[2]
_TIMEOUT = 280.0
_BARS = "{http://www.w3.org/2000/svg}rect"


@pytest.mark.embedded_broker  # once is enough
@pytest.mark.timeout(300)
def test_all_clients_read_and_are_reported_and_drawn(
    tmp_path: Path,
) -> None:
    """A small run gives figures for each case, mode and client, and bars for the first."""
    pytest.importorskip("aiokafka", reason="needs the extra bench")
    figures, picture = tmp_path / "figures.json", tmp_path / "picture.svg"
    command = [sys.executable, "-m", "tests.bench", "throughput", "--smoke"]
    command += ["--kafka=embedded"]
    command += ["--json", str(figures), "--svg", str(picture)]
    done = subprocess.run(  # noqa: S603 - our own module
        command,
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(figures.read_text(encoding="utf-8"))
    assert {"aiokafka", "confluent-kafka", "kafka-python"} <= set(result["versions"])
    modes = (POLL_500, ITERATION)
    read = [
        (one["partitions"], one["codec"], one["mode"], one["client"])
        for one in result["readings"]
    ]
    assert read == [
        (case.partitions, case.codec, mode.name, client)
        for case in SMOKE
        for mode in modes
        for client in mode.clients()
    ]
    for one in result["readings"]:
        assert min(one["rounds"]["records_per_s"]) > 0
        assert min(one["rounds"]["peak_mb"]) > 1
    bars = ET.parse(picture).iter(_BARS)  # noqa: S314 - our own file
    assert len(list(bars)) == sum(len(list(mode.clients())) for mode in modes)


@pytest.mark.embedded_broker  # once is enough
@pytest.mark.timeout(300)
def test_all_clients_follow_records_that_come_one_by_one(tmp_path: Path) -> None:
    """A small run gives figures for each row."""
    pytest.importorskip("aiokafka", reason="needs the extra bench")
    figures = tmp_path / "figures.json"
    command = [sys.executable, "-m", "tests.bench", "trickle", "--smoke"]
    command += ["--kafka=embedded", "--rounds=1", "--json", str(figures)]
    done = subprocess.run(  # noqa: S603 - our own module
        command,
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(figures.read_text(encoding="utf-8"))
    rows = list(dict.fromkeys(one["row"] for one in result["figures"]))
    assert rows == list(ROWS)
    for one in result["figures"]:
        assert all(values for values in one["rounds"].values()), one
