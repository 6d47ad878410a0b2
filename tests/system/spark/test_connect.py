"""Tests the pure Python source (S9) on a Spark Connect server without additional jars."""

import os
import signal

import pytest

from tests.harness.processes import Process, module
from tests.harness.spark import sink
from tests.harness.spark.connect import ConnectServer, KeptQueries
from tests.harness.spark.driver import Writing
from tests.harness.spark.lake import LIMIT, Lake, until
from tests.harness.waiting import retried, wait_for

pytest.importorskip("grpc_status", reason="no pyspark[connect]")

pytestmark = [
    pytest.mark.spark(since="4.2"),
    pytest.mark.real_broker,
    pytest.mark.timeout(900),
]

OFTEN = {"processingTime": "200 milliseconds"}


@pytest.fixture(scope="module")
def server(quick, tmp_path_factory):  # noqa: ARG001 - must precede the JVM
    with ConnectServer(tmp_path_factory.mktemp("connect")) as running:
        yield running


@pytest.fixture
def far(server, kafka_broker, tmp_path):
    """Yield a :class:`Lake` whose session is a client of the Spark Connect server."""
    made = Lake(server.session(), kafka_broker, tmp_path, partitions=2)
    yield made
    for query in made.spark.streams.active:
        query.stop()


@pytest.mark.contract("S9")
def test_group_hold_stops_a_stream_of_a_connect_client(far, operator):
    """A run during the hold finishes; the run after the lift writes the held rows once."""
    given = operator.options()
    far.produce_both(30)
    far.run(**given)
    assert far.rows() == far.produced()
    operator.hold(far.orders)
    far.produce_both(10)
    before = far.rows(far.orders)
    far.run(**given)
    assert far.rows(far.orders) == before
    assert far.rows(far.returns) == far.produced(far.returns)
    operator.lift(far.orders)
    far.run(**given, minRecordsPerTask="1000")
    assert far.rows() == far.produced()


@pytest.mark.contract("S9")
@pytest.mark.nightly
def test_foreach_batch_receives_no_row_of_a_held_topic(far, operator):
    """The server runs the function in a Python process, once for each batch."""
    from pyspark.errors.exceptions.connect import (  # noqa: PLC0415  if installed
        SparkException,
    )

    def rows():
        frame = far.stream(operator.options()).select("topic", "partition", "offset")
        written = frame.writeStream.foreachBatch(Writing(far.data))
        written = written.option("checkpointLocation", str(far.checkpoint))
        # Spark gives that process ten seconds to start, which is not enough on a busy
        # machine.
        query = retried(written.trigger(availableNow=True).start, SparkException)
        assert query.awaitTermination(LIMIT)
        return sink.folder_rows(far.data)

    far.produce_both(10)
    assert rows() == far.produced()
    operator.hold(far.orders)
    before = far.produced(far.orders)
    far.produce_both(5)
    assert rows() == before + far.produced(far.returns)
    operator.lift(far.orders)
    assert rows() == far.produced()


@pytest.mark.contract("S9")
def test_python_source_and_official_source_can_share_a_checkpoint(
    far, spark, controller
):
    """Three sources share a schema and a checkpoint, and do not lose or repeat any record."""
    client = far.spark
    for include in ("true", "false"):
        given = {"includeHeaders": include}
        ours = far.stream(given).schema
        far.spark = spark
        assert ours.jsonValue() == far.stream(given, "kafka").schema.jsonValue()
        far.spark = client
    steps = ["kafka", "python", "safekafka", "python", "kafka"]
    for step, source in enumerate(steps):
        far.produce_both(20)
        is_held = step in {1, 2}
        scope = far.orders if is_held else ""
        if source == "python":
            far.spark = client
            far.run(holds=scope)
        else:
            far.spark = spark
            if is_held:
                controller.pause(scope)
            far.run(format_=source)
            controller.resume(far.orders)
        assert (far.rows() == far.produced()) != is_held
    assert far.rows() == far.produced()


@pytest.mark.nightly
def test_stopped_query_of_a_connect_client_reports_its_stop(far, operator):
    """Spark stops the planning process with a signal and does not call the source first."""
    given = operator.reporting()
    far.produce_both(10)
    query = far.start(trigger=OFTEN, **given)
    until(lambda: far.rows() == far.produced(), query)
    until(lambda: "ready" in operator.states(), query)
    query.stop()
    until(lambda: operator.states()[-1] == "stopped")


@pytest.mark.contract("S9")
def test_unsupported_option_is_refused_when_the_schema_is_requested(far):
    for given in ({"maxRecordsPerPartition": "5"}, {"kafka.group.id": "g"}):
        with pytest.raises(Exception, match=next(iter(given)).lower()):
            far.stream(given).schema  # noqa: B018 - requests the schema from the server


def pause(operator, scope, patience):
    """Return the command that holds a scope and waits until the scope is quiet."""
    about = ["--bootstrap", operator.team.broker.bootstrap, "--group", operator.group]
    about += ["--topic-prefix", operator.team.prefix]
    about += ["--owner", "alice", "--reason", "migration", "--wait", patience]
    return module("safeconsumer", "pause", scope, *about)


@pytest.mark.contract("S9", "S1")
@pytest.mark.nightly
def test_hold_during_a_batch_is_quiet_only_once_that_batch_has_finished(
    far, operator, tmp_path
):
    """Spark commits a batch only after the next plan, so its commit does not mark its end."""
    (tmp_path / "go").touch()
    far.produce_both(10)
    from pyspark.sql.connect import functions  # noqa: PLC0415  if installed

    query = far.start_pausing(functions, OFTEN, **operator.reporting())
    until(lambda: far.rows() == far.produced(), query)
    (tmp_path / "go").unlink()
    far.produce_both(10)
    until((tmp_path / "in-the-middle").exists, query)
    far.produce_both(5)  # beyond the end of the running batch
    command = pause(operator, far.orders, "10m")
    with operator.looking() as look, Process(command) as pausing:
        until(lambda: "a batch that was planned" in look(far.orders)[1], query)
        assert not pausing.is_over
        (tmp_path / "go").touch()
        assert pausing.wait(LIMIT), pausing.lines
        assert look(far.orders)[0]
    until(lambda: far.rows(far.returns) == far.produced(far.returns), query)
    assert len(far.rows(far.orders)) == 2 * 20
    operator.lift(far.orders)
    until(lambda: far.rows() == far.produced(), query)
    query.stop()


@pytest.mark.contract("S9")
@pytest.mark.nightly
def test_query_outlives_its_connect_client(server, far, operator):
    """The query keeps running on the server, and another client can use its session."""
    far.produce_both(10)
    query = far.start(trigger=OFTEN, **operator.options())
    until(lambda: far.rows() == far.produced(), query)
    session = far.spark.session_id
    far.spark.client.close()
    far.spark = server.session(session)
    (query,) = far.spark.streams.active
    operator.hold(far.orders)
    before = far.rows(far.orders)
    far.produce_both(10)
    until(lambda: far.rows(far.returns) == far.produced(far.returns), query)
    assert far.rows(far.orders) == before
    operator.lift(far.orders)
    until(lambda: far.rows() == far.produced(), query)


@pytest.mark.contract("S9")
@pytest.mark.nightly
def test_killed_planner_fails_the_query_and_the_next_run_continues(
    server, far, operator
):
    given = operator.options()
    far.produce_both(10)
    query = far.start(trigger=OFTEN, **given)
    until(lambda: far.rows() == far.produced(), query)
    operator.hold(far.orders)
    (planner,) = server.planners()
    os.kill(planner, signal.SIGKILL)
    until(lambda: query.exception() is not None)
    far.produce_both(10)
    far.run(**given)
    assert far.rows(far.returns) == far.produced(far.returns)
    assert len(far.rows(far.orders)) == 2 * 10
    operator.lift(far.orders)
    far.run(**given)
    assert far.rows() == far.produced()


def batches(lake):
    """Return the numbers of the last planned and the last finished batch of a lake."""
    return tuple(
        max((int(one.name) for one in log.glob("*") if one.name.isdigit()), default=-1)
        for log in (lake.checkpoint / "offsets", lake.checkpoint / "commits")
    )


def is_in_a_batch(lake):
    planned, ended = batches(lake)
    return planned > ended


def kill_in_batches(server, lakes, **given):
    """
    Run queries until each has finished a batch and has begun another; kill the server.

    Return the number of queries that were running a batch when the server was killed.
    """
    before = {lake: batches(lake)[1] for lake in lakes}
    queries = KeptQueries(lakes, trigger={"processingTime": "0 seconds"}, **given)

    def have_ended_one():
        return queries.revive() and all(
            batches(lake)[1] > ended for lake, ended in before.items()
        )

    def are_in_batches():
        return queries.revive() and all(map(is_in_a_batch, lakes))

    # The pause is long, because each check sends requests to the server, which is busy
    # while the queries start.
    limits = {"limit": LIMIT, "seen": server.log}
    wait_for(have_ended_one, "a batch of each query", pause=1.0, **limits)
    wait_for(are_in_batches, "all in a batch", **limits)
    server.kill()
    return sum(map(is_in_a_batch, lakes))


@pytest.mark.contract("S9")
@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_killing_the_server_during_20_batches_loses_no_record(
    server, kafka_broker, operator, tmp_path
):
    """A new run repeats interrupted batches in full, even if their topics are now held."""
    given = operator.options()
    client, rounds = server.session(), []
    folders = [tmp_path / str(number) for number in range(3)]
    lakes = [Lake(client, kafka_broker, one, partitions=2) for one in folders]
    while sum(rounds) < 20:
        for lake in lakes:
            lake.produce_both(1000)
        scopes = [f"{lake.returns}:1" for lake in lakes]
        operator.hold(*scopes[len(rounds) % 2 :])
        tasks = {"minRecordsPerTask": str((1, 40, 1000)[len(rounds) % 3])}
        often = {"maxOffsetsPerTrigger": "60", **tasks, **given}
        rounds.append(kill_in_batches(server, lakes, **often))
        operator.lift(*scopes)
        server.start()
        for lake in lakes:
            lake.spark = server.session()
            assert not lake.rows() - lake.produced()
    last = KeptQueries(lakes, **given)
    wait_for(last.are_over, "the rest to be read", LIMIT, pause=1.0, seen=server.log)
    assert [one.rows() for one in lakes] == [one.produced() for one in lakes]
    print(f"in batches when the server was killed: {rounds}")  # noqa: T201
