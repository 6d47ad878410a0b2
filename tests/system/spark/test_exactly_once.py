"""S2: nothing missing and nothing twice, whatever happens to the driver."""

import os
import signal
import sys
import time
from contextlib import contextmanager

import pytest

from tests.harness.processes import logged
from tests.harness.spark import connector, sink
from tests.harness.spark.lake import LIMIT
from tests.harness.waiting import looks

pytestmark = [pytest.mark.spark, pytest.mark.real_broker, pytest.mark.timeout(900)]


@pytest.mark.nightly
@pytest.mark.contract("S2")
def test_restarts_under_holds_that_change(lake, controller):
    """Three restarts from one checkpoint; each batch is planned under other holds."""
    for held in (lake.orders, lake.returns, f"{lake.orders}:1", None):
        lake.produce_both(25)
        if held is not None:
            controller.pause(held)
        lake.run(maxOffsetsPerTrigger="60")
        assert not lake.rows() - lake.produced()
        assert max(lake.rows().values()) == 1
        if held is not None:
            controller.resume(held)
    assert lake.rows() == lake.produced()


class Driven:
    """A driver in a process of its own, over the lake's topics."""

    def __init__(self, lake, master="local[2]", kind="parquet"):
        self.lake = lake
        self.master = master
        self.kind = kind
        self.folder = lake.data.parent
        self.middle, self.go = self.folder / "in-the-middle", self.folder / "go"

    def rows(self):
        readers = {
            "parquet": sink.rows,
            "delta": sink.delta_rows,
            "foreachBatch": sink.folder_rows,
        }
        return readers[self.kind](self.lake.data)

    def hold(self, *scopes):
        (self.folder / "holds").write_text(" ".join(scopes))

    @contextmanager
    def running(self):
        topics = f"{self.lake.orders},{self.lake.returns}"
        command = [sys.executable, "-m", "tests.system.spark.driver"]
        command += [self.lake.broker.bootstrap, topics, str(self.folder), self.master]
        command += [self.kind]
        env = {"PYSPARK_PYTHON": sys.executable}
        with logged(command, self.folder / "driver.log", env) as driver:
            yield driver

    def await_middle(self, driver):
        for _ in looks(self.middle.exists, "the middle", LIMIT, seen=self.log):
            assert driver.poll() is None, self.log()
            time.sleep(0.05)

    def kill_in_the_middle(self):
        self.middle.unlink(missing_ok=True)
        self.go.unlink(missing_ok=True)
        with self.running() as driver:
            self.await_middle(driver)
            os.killpg(driver.pid, signal.SIGKILL)  # driver, JVM and workers at once

    def finish(self):
        self.go.touch()
        with self.running() as driver:
            assert driver.wait(LIMIT) == 0, self.log()

    def log(self):
        return (self.folder / "driver.log").read_text()[-4000:]


@pytest.mark.contract("S2")
@pytest.mark.parametrize(
    "kind",
    [
        "parquet",
        pytest.param("delta", marks=pytest.mark.nightly),
        pytest.param("foreachBatch", marks=pytest.mark.nightly),
    ],
)
def test_a_driver_killed_in_the_middle_of_a_batch(lake, kind):
    """The batch in the offset log comes again in full, also what is held by now."""
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
