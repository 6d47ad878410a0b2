"""Tests that only an explicit decision lets a stream advance, and that misuse is refused."""

import re
import shutil
import sysconfig
import threading
from collections import Counter
from functools import partial
from urllib.parse import parse_qsl, urlencode

import pytest

from safeconsumer import spark as safe
from safeconsumer.errors import SparkSetupError
from safeconsumer.spark import provision
from safeconsumer.spark.bridge import Bridge
from safeconsumer.spark.java_clients import java_class
from safeconsumer.spark.session import _SHIM
from tests.harness.group.team import Team
from tests.harness.packages import DECODER, build, files_below, package_in
from tests.harness.processes import ROOT, ran_python
from tests.harness.spark import shim
from tests.harness.spark.lake import LIMIT, metrics, progress, until

pytestmark = [pytest.mark.spark, pytest.mark.real_broker, pytest.mark.timeout(900)]

EVERY = {"processingTime": "100 milliseconds"}
OLD = """
package safeconsumer.spark;

import java.util.Map;
import java.util.function.BiFunction;

public final class SafeKafkaProvider
    implements org.apache.spark.sql.sources.DataSourceRegister {
  public static void decideBy(BiFunction<String, Map<String, String>, String> python) {}
  @Override public String shortName() { return "safekafka"; }
}
"""

OLD_PROGRAM = """
import sys
from tests.harness.spark.fixtures import session_with
from safeconsumer import errors, spark
session = session_with(sys.argv[1], "local[1]")
try:
    spark.register(session)
except errors.SparkSetupError as error:
    print(error)
session.stop()
"""


def changed(**facts):
    def answer(text):
        return urlencode({**dict(parse_qsl(text, keep_blank_values=True)), **facts})

    return answer


WRONG = {
    "None": lambda _: None,
    "nothing": lambda _: "",
    "consent of the first protocol": lambda _: "verdict=go",
    "another protocol": changed(protocol="1"),
    "another decider": changed(decider="another"),
    "another question": changed(number="another"),
    "no verdict": lambda text: text.replace("&verdict=go", ""),
    "an unknown verdict": changed(verdict="yes"),
    "no end": lambda text: text.partition("&verdict=go")[0] + "&verdict=go",
    "no text": lambda text: text.replace("&", " "),
}


def test_only_an_explicit_decision_lets_partitions_advance(
    lake, controller, monkeypatch
):
    """S4: after any kind of invalid answer all partitions are held."""
    real = Bridge.apply
    wrong = [WRONG["None"]]
    asked = threading.Event()

    def apply(self, question, text):
        answer = real(self, question, text)
        if question in {"complete", "made"}:  # a stream needs these answers
            return answer
        asked.set()
        return wrong[-1](answer)

    monkeypatch.setattr(Bridge, "apply", apply)
    lake.produce(lake.orders, 5)
    query = lake.start(trigger=EVERY)
    for name, one in WRONG.items():
        wrong.append(one)
        asked.clear()
        assert asked.wait(LIMIT), name
        until(later(query), query)
        answer = metrics(progress(query))[-1]
        assert (answer["held"], bool(answer["heldBecause"])) == ("@all", True), name
    assert lake.rows() == Counter()
    monkeypatch.setattr(Bridge, "apply", real)
    until(lambda: lake.rows() == lake.produced(), query)
    query.stop()
    until(lambda: controller.bridge.streams() == ())


def later(query):
    def moments():
        return {one["timestamp"] for one in progress(query)}

    before = moments()
    return lambda: bool(moments() - before)


@pytest.mark.nightly
def test_unregistered_session_is_refused(lake):
    """Registering another session of the JVM does not help; the error has no traceback."""
    from pyspark.errors import IllegalArgumentException  # noqa: PLC0415  if installed

    beside = lake.spark.newSession()
    reader = beside.readStream.format("safekafka").option("subscribe", lake.orders)
    reader = reader.option("kafka.bootstrap.servers", lake.broker.bootstrap)
    with pytest.raises(IllegalArgumentException) as caught:
        reader.load()
    assert "call safeconsumer.spark.register(spark) with it first" in str(caught.value)
    assert "\n" not in str(caught.value)
    own = safe.register(beside, hooks=())
    assert safe.register(beside) is own
    assert safe.register(lake.spark) is not own
    reader.load()


@pytest.mark.nightly
def test_closed_handle_frees_the_resources_of_its_session(lake):
    """``close`` is refused while a stream runs; a closed session can be registered again."""
    beside = lake.spark.newSession()
    own = safe.register(beside, hooks=())
    reader = beside.readStream.format("safekafka").option("subscribe", lake.orders)
    reader = reader.option("kafka.bootstrap.servers", lake.broker.bootstrap)
    query = reader.load().writeStream.format("noop").trigger(**EVERY).start()
    until(lambda: own.bridge.streams() != (), query)
    with pytest.raises(SparkSetupError, match="stop the session's streams first"):
        own.close()
    query.stop()
    until(lambda: own.bridge.streams() == ())
    assert isinstance(own.on_close, partial)
    *_, line = own.on_close.args
    own.close()
    own.close()
    assert line.server.thread is None
    java = java_class(lake.spark.sparkContext._gateway.jvm, _SHIM)
    with pytest.raises(Exception, match="NullPointerException"):
        java.hello(own.bridge.decider)
    with pytest.raises(SparkSetupError, match="or the handle closed"):
        own.pause(lake.orders)
    with pytest.raises(Exception, match=r"safeconsumer\.spark\.register\(spark\)"):
        reader.load()
    again = safe.register(beside, hooks=())
    assert again is not own
    reader.load()
    again.close()


@pytest.mark.nightly
def test_wheel_refuses_an_older_shim(tmp_path):
    """``register`` refuses the shim, so no stream can start."""
    shutil.copytree(shim.SOURCES / "resources", tmp_path / "resources")
    source = tmp_path / "java" / "SafeKafkaProvider.java"
    source.parent.mkdir()
    source.write_text(OLD)
    jar = shim.compiled(tmp_path / "old.jar", tmp_path)
    done = ran_python("-c", OLD_PROGRAM, jar, cwd=ROOT, timeout=LIMIT)
    assert "speaks protocol 1, the installed safeconsumer 6" in done.stdout, done


def test_batch_reads_continuous_mode_and_bad_options_are_refused_with_the_reason(
    lake, controller
):
    batch = lake.spark.read.format("safekafka").option("subscribe", lake.orders)
    batch = batch.option("kafka.bootstrap.servers", lake.broker.bootstrap)
    with pytest.raises(Exception, match=r'read batches with format\("kafka"\)'):
        batch.load().count()
    frame = lake.stream({}).select("value")
    query = frame.writeStream.format("noop").trigger(continuous="1 second")
    query = query.option("checkpointLocation", str(lake.checkpoint))
    with pytest.raises(Exception, match="no continuous mode"):
        query.start().awaitTermination(60)
    with pytest.raises(Exception, match=r"no option holds\.file"):
        lake.stream({"holds.file": "file:///lake/holds.json"})
    options = {"kafka.sasl.jaas.config": "password='hunter2'", "holds": "a b:c"}
    with pytest.raises(Exception, match="option holds") as caught:
        lake.stream(options)
    assert "hunter2" not in str(caught.value)
    frame = lake.spark.readStream.format("safekafka").option("subscribe", "x")
    query = frame.load().writeStream.format("noop").start()
    with pytest.raises(Exception, match=r"kafka\.bootstrap\.servers"):
        query.awaitTermination(60)  # a message from the official source
    assert controller.bridge.streams() == ()
    assert safe.register(lake.spark) is controller


@pytest.mark.parametrize("mode", ["error", "append", "overwrite", "ignore"])
def test_writing_is_refused_with_the_reason(lake, controller, mode):
    frame = lake.spark.range(1).selectExpr("cast(id as string) as value")
    writer = frame.write.format("safekafka").option("topic", lake.orders)
    writer = writer.option("kafka.bootstrap.servers", lake.broker.bootstrap)
    answer = r'safekafka only reads; write with format\("kafka"\)'
    with pytest.raises(Exception, match=answer) as caught:
        writer.mode(mode).save()
    assert type(caught.value).__name__ == "UnsupportedOperationException"
    assert controller.bridge.streams() == ()


@pytest.mark.nightly
def test_rebuilt_jar_is_identical(tmp_path):
    """With the JDK that the manifest names, each version of Spark gives the same bytes."""
    made = shim.compiled(tmp_path / "made.jar")
    if shim.facts(made)["Build-Jdk"] != shim.facts(provision.JAR)["Build-Jdk"]:
        pytest.skip("another JDK may compile other bytes from the same sources")
    assert shim.contents(made) == shim.contents(provision.JAR)


@pytest.mark.nightly
def test_wheel_has_the_package_and_the_compiled_decoder(tmp_path):
    """The wheel contains every file of the package, but no tests and no caches."""
    wheel, _ = build(tmp_path, "wheel")
    assert package_in(wheel) == files_below("safeconsumer") | {DECODER}
    platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
    assert wheel.name.endswith(f"-cp311-abi3-{platform}.whl"), "not for each Python"


@pytest.mark.nightly
def test_streams_that_fail_to_open_leave_neither_streams_nor_threads(lake, controller):
    """The test checks the threads in Python and in the JVM."""
    with Team(lake.broker, partitions=1, records=0) as team:
        team.create("not-compacted", {"cleanup.policy": "delete"})
        options = {
            "holds.control": "true",
            "holds.topic": "not-compacted",
            "holds.statusTopic": "",
            "holds.group": team.group,
        }
        before = set(threading.enumerate())
        for _ in range(3):
            query = lake.start(**options)
            with pytest.raises(Exception, match="not-compacted"):
                query.awaitTermination(60)
        assert controller.bridge.streams() == ()
        left = {one.name for one in set(threading.enumerate()) - before}
        assert not {one for one in left if one.startswith(("safe", "kafka"))}
        until(lambda: "safekafka-decision" not in java_threads(lake))


@pytest.mark.nightly
def test_stopped_session_leaves_no_stream_and_logs_each_state_once(lake):
    """
    Before the stop, the session's process blocks decisions for twenty triggers.

    A query that is stopped while it is planned is not reported as held.
    """
    program = ("-m", "tests.system.spark.stopping")
    done = ran_python(*program, lake.broker.bootstrap, lake.orders, timeout=LIMIT)
    assert done.stdout.splitlines() == [
        "streams: 1",
        "stopped in a plan: None",
        "after the stop: 0",
        "refused: this session was stopped",
        "another handle: True",
        "and it runs: True",
        "not ended: 1",
        "its port is free: True",
    ], done.stderr
    answer = [line for line in done.stderr.splitlines() if "safekafka: " in line]
    held = [line for line in answer if "everything is held" in line]
    # The two reasons are a decision that came late and a decision that had not returned
    # yet.
    assert len(held) == 2, answer
    assert sum("there are decisions again" in line for line in answer) == 1, answer


def java_threads(lake):
    java = lake.spark.sparkContext._jvm.java.lang
    return {one.getName() for one in java.Thread.getAllStackTraces().keySet()}
