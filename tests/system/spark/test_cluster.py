"""Tests streams on a standalone cluster with a master process and two worker processes."""

import os
import signal
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from attrs import frozen

from safeconsumer import spark as safe
from tests.harness.brokers.ports import reserved_port
from tests.harness.docs.pages import spark_example
from tests.harness.processes import logged, ran
from tests.harness.spark import connector
from tests.harness.spark.driver import Driven
from tests.harness.spark.lake import LIMIT
from tests.harness.waiting import code_of, wait_for

pytestmark = [
    pytest.mark.spark,
    pytest.mark.real_broker,
    pytest.mark.timeout(900),
    pytest.mark.nightly,
]

_DEPLOY = "org.apache.spark.deploy"


@contextmanager
def running(log, *arguments):
    import pyspark  # noqa: PLC0415  only where it is installed

    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-class"), *arguments]
    with logged(command, log, {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}):
        yield


@frozen
class Cluster:
    """The address of a master, and the folder that contains its workers' folders."""

    address: str
    folder: Path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Start and yield a cluster with two one-core workers, which all tests share."""
    folder = tmp_path_factory.mktemp("cluster")
    port, log = reserved_port(), folder / "master.log"
    address = f"spark://127.0.0.1:{port}"
    where = ["--host", "127.0.0.1"]
    with ExitStack() as started:
        own = [*where, "--port", str(port), "--webui-port", "0"]
        started.enter_context(running(log, f"{_DEPLOY}.master.Master", *own))
        for number in range(2):
            more = [*where, "--webui-port", "0", "--cores", "1", "--memory", "1g"]
            more += ["--work-dir", str(folder / f"work-{number}"), address]
            out = folder / f"worker-{number}.log"
            started.enter_context(running(out, f"{_DEPLOY}.worker.Worker", *more))
        wait_for(
            lambda: log.read_text().count("Registering worker") == 2,
            "both workers",
            LIMIT,
            seen=log.read_text,
            pause=0.1,
        )
        yield Cluster(address, folder)


def test_archive_example_runs_on_a_cluster(lake, cluster, tmp_path, operator):
    """S1: executors in other processes read the ranges that the driver has planned."""
    lake.produce_both(25)
    operator.hold(lake.orders)
    code = operator.obeying(lake.adapted(spark_example("archive.md")))
    (tmp_path / "archive.py").write_text(
        "from pyspark.sql import SparkSession\n"
        + code.replace("safe.builder()", "SparkSession.builder")
    )
    command = [str(Path(sys.executable).with_name("spark-submit"))]
    command += ["--master", cluster.address, "--conf", "spark.cores.max=2"]
    # With this setting no task starts before both workers have executors.
    command += ["--conf", "spark.scheduler.minRegisteredResourcesRatio=1.0"]
    command += ["--jars", safe.jars(connector.folder()), str(tmp_path / "archive.py")]
    env = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = ran(*command, timeout=LIMIT, env=os.environ | env)
    assert done.returncode == 0, done.stderr[-3000:]
    assert lake.rows() == lake.produced(lake.returns)
    executors = list(cluster.folder.glob("work-*/app-*/*"))
    assert {path.parts[-3] for path in executors} == {"work-0", "work-1"}


def executors_of(folder):
    """Return the processes of executors, which run in the folders of this test's workers."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            where = (process / "cwd").readlink()
            name = (process / "cmdline").read_bytes()
        except OSError:  # the process has exited
            continue
        is_ours = where.is_relative_to(folder) and "work-" in str(where)
        if is_ours and b"CoarseGrainedExecutorBackend" in name:
            found.append(int(process.name))
    return found


@pytest.mark.contract("S2")
def test_batch_is_completed_after_its_executors_are_killed(lake, cluster, monkeypatch):
    """S2: new executors repeat, once, the tasks that two killed executors left unfinished."""
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    lake.produce_both(100)
    driven = Driven(lake, cluster.address)
    driven.hold(lake.returns)
    with driven.running() as driver:
        for _ in range(2):
            driven.await_middle(driver)
            (victim, *_) = executors_of(cluster.folder)
            driven.middle.unlink()
            os.kill(victim, signal.SIGKILL)
        driven.go.touch()
        assert code_of(driver, LIMIT) == 0, driven.log()
    assert lake.rows() == lake.produced(lake.orders)
    driven.hold()
    driven.finish()
    assert lake.rows() == lake.produced()
