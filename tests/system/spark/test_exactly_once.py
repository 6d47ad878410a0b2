"""Tests that killing a driver does not lose or repeat any record (S2)."""

import pytest

from tests.harness.spark import connector
from tests.harness.spark.driver import Driven

pytestmark = [pytest.mark.spark, pytest.mark.real_broker, pytest.mark.timeout(900)]


@pytest.mark.contract("S2")
@pytest.mark.parametrize(
    "kind",
    [
        "parquet",
        pytest.param("delta", marks=pytest.mark.nightly),
        pytest.param("foreachBatch", marks=pytest.mark.nightly),
    ],
)
def test_batch_of_a_killed_driver_is_repeated_once(lake, kind):
    """The new driver repeats the interrupted batch in full, even if its topic is now held."""
    if kind == "delta" and not connector.delta().is_dir():
        pytest.skip(
            f"no Delta in {connector.delta()}: python -m tests.harness.spark.connector"
        )
    driven = Driven(lake, kind=kind)
    lake.produce_both(100)
    driven.hold(lake.returns)
    driven.kill_in_the_middle()
    lake.produce(lake.orders, 100)
    driven.hold(f"{lake.orders}:2")
    driven.finish()
    held = {row for row in lake.produced() if row[:2] == (lake.orders, 2)}
    missing = set(lake.produced() - driven.rows())
    assert missing <= held
    assert missing
    driven.hold()
    driven.finish()
    assert driven.rows() == lake.produced()
