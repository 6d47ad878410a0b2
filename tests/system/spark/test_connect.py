"""S9: a source in pure Python, through a real Spark Connect server without any jar."""

import json
import os
import signal
from uuid import uuid4

import pytest
from kafka.errors import KafkaError

from safeconsumer.group import topics
from tests.harness.processes import Process, logged, module, ran
from tests.harness.spark.connect import ConnectServer, KeptQueries
from tests.harness.spark.lake import LIMIT, Lake, progress, until
from tests.harness.spark.operator import Operator
from tests.harness.waiting import retried, wait_for
from tests.system.spark.driver import Pausing
from tests.system.spark.test_quiet import desk

pytest.importorskip("grpc_status", reason="no pyspark[connect]")

pytestmark = [
    pytest.mark.spark(since="4.2"),
    pytest.mark.real_broker,
    pytest.mark.timeout(900),
]

OFTEN = {"processingTime": "200 milliseconds"}


@pytest.fixture(scope="module")
def server(quick, tmp_path_factory):  # noqa: ARG001 - before its JVM
    with ConnectServer(tmp_path_factory.mktemp("connect")) as running:
        yield running


@pytest.fixture
def operator(kafka_broker):
    made = Operator(kafka_broker)
    with made.team:
        yield made


@pytest.fixture
def far(server, kafka_broker, tmp_path):
    """Lend topics and a folder, which a client of the server uses."""
    made = Lake(server.session(), kafka_broker, tmp_path, partitions=2)
    yield made
    for query in made.spark.streams.active:
        query.stop()


def options(operator, **more):
    """Return options as the lake takes them."""
    named = {**operator.options(), **more}
    return {name.replace(".", "_"): one for name, one in named.items()}


@pytest.mark.contract("S9")
def test_a_group_hold_stops_a_stream_of_a_client(far, operator):
    """A run ends by itself under a hold; the rows come after it is lifted, once."""
    given = options(operator)
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
def test_a_checkpoint_goes_to_the_official_source_and_back(far, spark, controller):
    """One schema and one checkpoint, three sources: nothing lost, nothing twice."""
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
def test_a_query_reports_what_it_obeys_and_that_it_stopped(far, operator):
    """Spark ends the process that plans by a signal, and calls nothing."""
    given = options(operator, **operator.reports())
    far.produce_both(10)
    query = far.start(trigger=OFTEN, **given)
    until(lambda: far.rows() == far.produced(), query)
    until(lambda: "ready" in operator.states(), query)
    query.stop()
    until(lambda: operator.states()[-1] == "stopped")


@pytest.mark.contract("S9")
def test_what_the_source_lacks_is_refused_where_the_stream_is_described(far):
    for given in ({"maxRecordsPerPartition": "5"}, {"kafka.group.id": "g"}):
        with pytest.raises(Exception, match=next(iter(given)).lower()):
            far.stream(given).schema  # noqa: B018 - the server is asked for it


def pause(operator, scope, patience):
    """Return the command that holds a scope, and waits until it is quiet."""
    about = ["--bootstrap", operator.team.broker.bootstrap, "--group", operator.group]
    about += ["--topic-prefix", operator.team.prefix]
    about += ["--owner", "alice", "--reason", "migration", "--wait", patience]
    return module("safeconsumer", "pause", scope, *about)


def start_pausing(far, given):
    """Start a query whose tasks stop in the middle while there is no file ``go``."""
    from pyspark.sql import types  # noqa: PLC0415  if installed
    from pyspark.sql.connect import functions  # noqa: PLC0415  if installed

    pausing = Pausing(far.data.parent)
    paused = functions.udf(pausing, types.LongType(), useArrow=False)
    named = {name.replace("_", "."): one for name, one in given.items()}
    frame = far.stream(named).select(
        "topic", "partition", paused("offset").alias("offset")
    )
    written = frame.writeStream.format("parquet").trigger(**OFTEN)
    return written.start(str(far.data), checkpointLocation=str(far.checkpoint))


@pytest.mark.contract("S9", "S1")
@pytest.mark.nightly
def test_a_hold_in_the_middle_of_a_batch_is_quiet_when_that_batch_has_ended(
    far, operator, tmp_path
):
    """Spark commits the batch before once it has planned this one: no proof of its end."""
    (tmp_path / "go").touch()
    far.produce_both(10)
    query = start_pausing(far, options(operator, **operator.reports()))
    until(lambda: far.rows() == far.produced(), query)
    (tmp_path / "go").unlink()
    far.produce_both(10)
    until((tmp_path / "in-the-middle").exists, query)
    far.produce_both(5)  # behind the end of this batch
    command = pause(operator, far.orders, "10m")
    with desk(operator) as look, Process(command) as pausing:
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


@pytest.mark.nightly
def test_the_end_of_a_batch_is_known_at_the_next_plan_only(far, operator):
    """``pause --wait`` is late, and safe: it says that the stream may still read."""
    far.produce_both(10)
    given = options(operator, **operator.reports())
    query = far.start(trigger={"processingTime": "1 hour"}, **given)
    until(lambda: far.rows() == far.produced(), query)
    with desk(operator) as look:
        done = ran(*pause(operator, far.orders, "1s"))
        assert done.returncode == 1
        assert "a batch that was planned" in done.stdout + done.stderr
        query.stop()
        until(lambda: "no members" in look(far.orders)[1])


@pytest.mark.contract("S9")
@pytest.mark.nightly
def test_a_query_outlives_its_client(server, far, operator, tmp_path):
    """The client's process is killed; the query reads, and obeys holds."""
    session, folder = str(uuid4()), far.data.parent
    given = {
        "kafka.bootstrap.servers": far.broker.bootstrap,
        "startingOffsets": "earliest",
        "subscribe": f"{far.orders},{far.returns}",
        **operator.options(),
    }
    texts = [f"{name}={value}" for name, value in given.items()]
    client = module("tests.harness.spark.far", server.remote(session), folder, *texts)
    far.produce_both(10)
    with logged([*map(str, client)], tmp_path / "client.log"):
        until((folder / "started").exists)
        until(lambda: far.rows() == far.produced())
    operator.hold(far.orders)
    before = far.rows(far.orders)
    far.produce_both(10)
    until(lambda: far.rows(far.returns) == far.produced(far.returns))
    assert far.rows(far.orders) == before
    operator.lift(far.orders)
    until(lambda: far.rows() == far.produced())
    (query,) = server.session(session).streams.active
    query.stop()


@pytest.mark.contract("S9")
@pytest.mark.nightly
def test_a_killed_planner_fails_the_query_and_the_next_start_goes_on(
    server, far, operator
):
    given = options(operator)
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


@pytest.mark.contract("S9", "S4")
@pytest.mark.nightly
def test_control_topics_that_are_deleted_and_made_again_while_it_runs(far, operator):
    """All is held while they are gone; a hold of before stays until it is lifted."""
    given = options(operator, holds_controlTimeoutMs="1000")
    far.produce_both(10)
    query = far.start(trigger=OFTEN, **given)
    until(lambda: far.rows() == far.produced(), query)
    operator.hold(far.orders)
    far.produce_both(10)
    until(lambda: far.rows(far.returns) == far.produced(far.returns), query)
    before = far.rows()
    operator.team.broker.delete_topic(operator.topic)
    far.produce_both(10)
    until(lambda: knows(query, far.returns, 30), query)
    assert far.rows() == before
    retried(
        lambda: operator.team.create(operator.topic, topics.HOLDS_SETTINGS),
        KafkaError,
        limit=60,
    )
    until(lambda: far.rows(far.returns) == far.produced(far.returns), query)
    assert len(far.rows(far.orders)) == 2 * 10
    operator.lift(far.orders)
    until(lambda: far.rows() == far.produced(), query)
    query.stop()


def knows(query, topic, end):
    """Return whether a plan has found that a topic ends there."""
    found = progress(query)[-1]["sources"][0]["latestOffset"]
    return found is not None and set(json.loads(found)[topic].values()) == {end}


def batches(lake):
    """Return the last batches of a checkpoint's logs: the one planned, the one ended."""
    return tuple(
        max((int(one.name) for one in log.glob("*") if one.name.isdigit()), default=-1)
        for log in (lake.checkpoint / "offsets", lake.checkpoint / "commits")
    )


def is_in_a_batch(lake):
    planned, ended = batches(lake)
    return planned > ended


def kill_in_batches(server, lakes, **given):
    """
    Run queries until each has ended a batch and all are in a batch; kill the server.

    Return how many were in a batch.
    """
    before = {lake: batches(lake)[1] for lake in lakes}
    queries = KeptQueries(lakes, trigger={"processingTime": "0 seconds"}, **given)

    def have_ended_one():
        return queries.revive() and all(
            batches(lake)[1] > ended for lake, ended in before.items()
        )

    def are_in_batches():
        return queries.revive() and all(map(is_in_a_batch, lakes))

    # Each look asks the server, which is busy enough while the queries start.
    limits = {"limit": LIMIT, "seen": server.log}
    wait_for(have_ended_one, "a batch of each query", pause=1.0, **limits)
    wait_for(are_in_batches, "all in a batch", **limits)
    server.kill()
    return sum(map(is_in_a_batch, lakes))


@pytest.mark.contract("S9")
@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_a_server_killed_until_20_batches_were_cut_off(
    server, kafka_broker, operator, tmp_path
):
    """Batches of the offset log come again in full, held or not: none lost, none twice."""
    given = options(operator)
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
    wait_for(last.are_over, "the rest is read", LIMIT, pause=1.0, seen=server.log)
    assert [one.rows() for one in lakes] == [one.produced() for one in lakes]
    print(f"in batches when the server was killed: {rounds}")  # noqa: T201
