"""The benchmarks run, whatever they measure."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench import auditing, group, overhead, worker
from tests.bench.against import rows as against
from tests.bench.stage import SMOKE, Stage

_ROOT = Path(__file__).parents[2]
_TIMEOUT = 280.0
_KEYS = {"row", "name", "target", "measured", "unit", "passed", "rounds", "note"}


@pytest.mark.embedded_broker  # once is enough
@pytest.mark.timeout(300)
@pytest.mark.parametrize("benchmark", [auditing, group, overhead, worker])
def test_every_row_is_measured_and_reported_as_json(
    tmp_path: Path,
    benchmark: Any,  # noqa: ANN401 - a module
) -> None:
    """A small run gives figures for each row, with raw values and versions."""
    path = tmp_path / "figures.json"
    name = benchmark.__name__.rpartition(".")[2]
    command = [sys.executable, "-m", "tests.bench", name, "--smoke"]
    command += ["--kafka=embedded"]
    command += ["--json", str(path)]
    done = subprocess.run(  # noqa: S603 - our own module
        command,
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(path.read_text(encoding="utf-8"))
    assert result["smoke"] is True
    assert {"python", "kafka-python", "safeconsumer"} <= set(result["versions"])
    rows = list(benchmark.ROWS)
    assert rows == list(dict.fromkeys(one["row"] for one in result["figures"]))
    for figure in result["figures"]:
        assert set(figure) == _KEYS
        assert (figure["passed"] is None) == (figure["target"] is None)
        assert all(values for values in figure["rounds"].values()), figure


@pytest.mark.real_broker
def test_our_side_of_a_comparison_is_measured(
    kafka_broker: Any,  # noqa: ANN401 - any real one
    tmp_path: Path,
) -> None:
    """Without the others, which would have to be installed."""
    stage = Stage(broker=kafka_broker, sizes=SMOKE)
    rows = ["against-no-op", "against-waiting", "against-memory"]
    result = against.run(stage, (), rows, folder=tmp_path, smoke=True)
    figures: Any = result["figures"]
    assert rows == list(dict.fromkeys(one["row"] for one in figures))
    assert all("safeconsumer" in one["name"] for one in figures)
    assert all(one["measured"] > 0 for one in figures)


@pytest.mark.parametrize(
    ("arm", "foreign"),
    [("reading", "safeconsumer"), ("following", "kafka"), ("throughput", "kafka")],
)
def test_an_arm_imports_nothing_of_the_others(arm: str, foreign: str) -> None:
    """Its memory is measured: a stock client's must hold none of ours, and so on."""
    script = (
        "import sys; from tests.bench.arms.__main__ import _class; "
        f"_class({arm!r}); sys.exit({foreign!r} in sys.modules)"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=_ROOT, check=False)  # noqa: S603 - our own
    assert done.returncode == 0
