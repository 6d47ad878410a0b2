"""Tests two Python processes that share a JVM; each decides for its own streams."""

import json

import pytest

from safeconsumer.errors import SparkSetupError
from safeconsumer.spark import register
from tests.harness.processes import Process, module
from tests.harness.spark import sink
from tests.harness.spark.lake import LIMIT, until

pytestmark = [pytest.mark.spark, pytest.mark.real_broker, pytest.mark.timeout(400)]

EVERY = {"processingTime": "100 milliseconds"}


class Host:
    """The process that runs the tests, with a guest process that shares its JVM."""

    def __init__(self, lake):
        gateway = lake.spark.sparkContext._gateway
        self.java = gateway.jvm.java.lang
        known = {
            "PYSPARK_GATEWAY_PORT": str(gateway.gateway_parameters.port),
            "PYSPARK_GATEWAY_SECRET": gateway.gateway_parameters.auth_token,
        }
        self.process = Process(module("tests.system.spark.guest"), env=known)
        assert self.process.take(LIMIT) == "ready"

    def ask(self, name, **arguments):
        self.process.tell(json.dumps([name, arguments]))
        return json.loads(self.process.take(LIMIT))

    def session(self):
        return self.java.System.getProperties().get("guest")


@pytest.fixture
def guest(lake):
    made = Host(lake)
    yield made
    session = made.session()
    for stream in () if session is None else session.streams().active():
        stream.stop()  # otherwise the stream would run until the JVM exits
    made.process.kill()
    take_callbacks_back(lake.spark)


def take_callbacks_back(spark):
    """
    Make the JVM send its calls into Python to this process again.

    PySpark has one channel for all calls from the JVM into Python, such as foreachBatch
    and listeners. The channel leads to the process that set it up last, even after that
    process has exited.
    """
    gateway = spark.sparkContext._gateway
    # If the attribute is missing, ``getattr`` would look it up in Java.
    here = gateway.__dict__.get("_callback_server")
    if here is not None:
        server = gateway.java_gateway_server
        address = server.getCallbackClient().getAddress()
        server.resetCallbackClient(address, here.port)


def held_because(stream):
    progress = stream.lastProgress()
    answer = json.loads(progress.json())["sources"][0] if progress else {}
    return str(answer.get("metrics", {}).get("heldBecause"))


def options(lake):
    return {
        "kafka.bootstrap.servers": lake.broker.bootstrap,
        "subscribe": f"{lake.orders},{lake.returns}",
        "startingOffsets": "earliest",
    }


@pytest.mark.contract("S4")
def test_streams_of_two_processes_obey_only_their_own_process(
    lake, controller, guest, tmp_path
):
    """S1, S4: a running stream keeps obeying the process that has started it."""
    lake.produce(lake.orders, 25)
    controller.pause(lake.orders)
    query = lake.start(trigger=EVERY)
    until(lambda: controller.lag().get((lake.orders, 3)) == 25, query)
    assert guest.ask("register", is_new=True) == ""
    guest.ask("foreach_batch")
    guest.ask("start", options=options(lake), folder=str(tmp_path / "guest"))
    theirs = tmp_path / "guest" / "data"
    until(lambda: sink.rows(theirs) == lake.produced(), query)
    lake.produce(lake.returns, 5)
    until(lambda: lake.rows() == lake.produced(lake.returns), query)
    until(lambda: sink.rows(theirs) == lake.produced(), query)
    controller.resume(lake.orders)
    until(lambda: lake.rows() == lake.produced(), query)
    query.stop()


@pytest.mark.nightly
def test_session_of_another_process_cannot_be_registered(guest):
    answer = guest.ask("register", is_new=False)
    assert "another process decides for the streams of this session" in answer
    assert "spark.newSession()" in answer


@pytest.mark.nightly
def test_hanging_process_does_not_block_another_process(lake, guest, tmp_path):
    """S4: requests to a frozen process time out, but the process does not count as dead."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  if installed

    assert guest.ask("register", is_new=True) == ""
    guest.ask("start", options=options(lake), folder=str(tmp_path / "guest"))
    theirs = SparkSession(lake.spark.sparkContext, guest.session())
    (stream,) = guest.session().streams().active()
    guest.process.freeze()
    try:
        with pytest.raises(SparkSetupError, match="does not answer in time"):
            register(theirs, hooks=())
        reader = theirs.readStream.format("safekafka").options(**options(lake))
        with pytest.raises(Exception, match="no decision within 10000 ms"):
            reader.load()
    finally:
        guest.process.thaw()
    assert guest.ask("foreach_batch") == ""
    stream.stop()


@pytest.mark.nightly
def test_streams_of_a_killed_process_are_held(lake, controller, guest, tmp_path):
    """S4: the surviving process can start new streams as usual."""
    assert guest.ask("register", is_new=True) == ""
    lake.produce(lake.orders, 5)
    guest.ask("start", options=options(lake), folder=str(tmp_path / "guest"))
    theirs = tmp_path / "guest" / "data"
    until(lambda: sink.rows(theirs) == lake.produced())
    seen = sink.rows(theirs)
    (stream,) = guest.session().streams().active()
    guest.process.kill()
    silent = "the process that registered this session does not answer"
    until(lambda: held_because(stream) == silent)
    lake.produce(lake.orders, 5)
    lake.run()
    assert lake.rows() == lake.produced()
    batch = stream.lastProgress().timestamp()
    until(lambda: stream.lastProgress().timestamp() > batch)
    assert sink.rows(theirs) == seen
    stream.stop()
    assert controller.bridge.streams() == ()
