"""S9: a source in pure Python, through a real Spark Connect server without any jar."""

import time

import pytest

from tests.harness.spark.connect import ConnectServer
from tests.harness.spark.lake import LIMIT, Lake, until
from tests.harness.spark.operator import Operator
from tests.harness.waiting import looks

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


def batches(lake):
    """Count the batches in a checkpoint's logs: those planned, and those that ended."""
    return tuple(
        len([one for one in (lake.checkpoint / log).glob("*") if one.name.isdigit()])
        for log in ("offsets", "commits")
    )


def is_in_a_batch(lake):
    planned, ended = batches(lake)
    return planned > ended


def kill_in_batches(server, lakes, **given):
    """
    Run queries until each has ended a batch, and most are in a batch; kill the server.

    Return how many were in a batch.
    """
    for lake in lakes:
        before = batches(lake)[1]
        lake.start(trigger={"processingTime": "0 seconds"}, **given)
        await_(lambda lake=lake, before=before: batches(lake)[1] > before, server)
    await_(lambda: 2 * sum(map(is_in_a_batch, lakes)) > len(lakes), server)
    server.kill()
    return sum(map(is_in_a_batch, lakes))


def await_(is_so, server):
    for _ in looks(is_so, "a batch under way", LIMIT, seen=server.log):
        time.sleep(0.01)


@pytest.mark.contract("S9")
@pytest.mark.parametrize(
    "shape",
    [(1, 1), pytest.param((7, 3), marks=pytest.mark.nightly)],
    ids=["once", "often"],
)
def test_a_server_killed_in_batches(server, kafka_broker, operator, tmp_path, shape):
    """Batches of the offset log come again in full, held or not: none lost, none twice."""
    given = options(operator)
    (rounds, queries), inside = shape, 0
    client = server.session()
    folders = [tmp_path / str(number) for number in range(queries)]
    lakes = [Lake(client, kafka_broker, one, partitions=2) for one in folders]
    for number in range(rounds):
        for lake in lakes:
            lake.produce_both(400)
        scopes = [f"{lake.returns}:1" for lake in lakes]
        operator.hold(*scopes[number % 2 :])
        tasks = str((1, 40, 1000)[number % 3])
        inside += kill_in_batches(
            server,
            lakes,
            maxOffsetsPerTrigger="60",
            minRecordsPerTask=tasks,
            **given,
        )
        operator.lift(*scopes)
        server.start()
        for lake in lakes:
            lake.spark = server.session()
            assert not lake.rows() - lake.produced()
    for lake in lakes:
        lake.run(**given)
    print(f"{inside} of {rounds * queries} queries were killed in a batch")  # noqa: T201
    assert [one.rows() for one in lakes] == [one.produced() for one in lakes]
    assert inside >= rounds
