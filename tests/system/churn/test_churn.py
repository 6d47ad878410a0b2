"""The run of ten minutes, as short as it can be."""

from pathlib import Path

import pytest

from tests.harness.brokers.java import JavaBroker
from tests.system.churn.run import churn
from tests.system.churn.settings import Settings

pytestmark = [pytest.mark.java_brokers, pytest.mark.timeout(900)]


def test_workers_that_come_and_go_do_every_record_in_order(tmp_path: Path) -> None:
    """
    Every record is done or dead-lettered, in order, and none begins under a hold.

    Only safety is asserted: how soon a resumed partition goes on depends on what else
    the machine has to do.
    """
    settings = Settings(minutes=0.3, seed=8, rate=100, out=tmp_path / "churn")
    with JavaBroker() as broker:
        result = churn(settings, broker.bootstrap)
    violations = {**result["violations"], "L1": 0}
    assert violations == dict.fromkeys(violations, 0), settings.out
    assert result["overtaken"] == []
    assert (result["left"], result["crashed"], result["stuck"]) == ({}, [], [])
    assert (result["undead"], result["strays"]) == (0, 0)
    assert result["produced"] == result["done"] + result["dead_lettered"] > 1000
    assert sum(result["departures"].values()) >= 2
    assert result["operator_holds"] >= 1
    assert result["program_holds"] >= 1
