"""No row is lost or twice if the process that plans and reads is killed in batches."""

import json
from collections import Counter
from itertools import cycle, islice

import pytest

from tests.harness.processes import Process, module
from tests.harness.spark.planned import Planned
from tests.harness.waiting import LIMIT

pytestmark = pytest.mark.any_broker

PLACES = ("planned", "read", "written")


@pytest.mark.contract("S9")
@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.nightly)])
def test_killed_in_batches_under_holds_that_change(
    kafka_broker, operator, tmp_path, kills
):
    with Planned(kafka_broker, partitions=3) as planned:
        held = f"{planned.topic}:1"
        options = planned.options(**operator.options())
        for number, place in enumerate(islice(cycle(PLACES), kills)):
            planned.produce(60, 60, 60)
            (operator.lift if number % 2 else operator.hold)(held)
            with running(tmp_path, place, options) as driver:
                assert driver.take(LIMIT) == place
        operator.lift(held)
        with running(tmp_path, "end", options) as driver:
            assert driver.take(LIMIT) is None
        assert rows(tmp_path) == {
            (planned.topic, partition, offset): 1
            for partition in range(3)
            for offset in range(60 * kills)
        }


def running(folder, place, options):
    command = module("tests.harness.spark.killable", str(folder), place)
    return Process([*command, json.dumps(options)])


def rows(folder):
    """Count the rows of all batches."""
    files = (folder / "rows").iterdir()
    return Counter(tuple(row) for one in files for row in json.loads(one.read_text()))
