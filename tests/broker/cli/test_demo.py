"""The demo on a broker: what it makes is deleted, and its referee believes no client."""

import uuid
from collections.abc import Iterable

import pytest
from attrs import evolve
from kafka import KafkaConsumer

from safeconsumer.cli.demo import _broker
from safeconsumer.demo import playing
from safeconsumer.demo.cluster import TidyCluster
from safeconsumer.demo.situations import SITUATIONS
from safeconsumer.demo.stage import PREFIX, SAFE, STOCK
from safeconsumer.demo.tally import Failure
from safeconsumer.testing.clients import Broker, Clients
from tests.harness.waiting import wait_for

pytestmark = pytest.mark.any_broker

FLAG = next(one for one in SITUATIONS if one.name == "flag")


@pytest.fixture
def stage() -> str:
    return f"{PREFIX}-{uuid.uuid4().hex[:8]}-"


@pytest.fixture
def cluster(kafka_broker: Broker) -> TidyCluster:
    return TidyCluster(",".join(kafka_broker.client_config["bootstrap_servers"]))


def test_topics_and_groups_of_a_demo_are_deleted(
    cluster: TidyCluster, stage: str
) -> None:
    """Also when the demo failed; what others made stays."""
    others = f"topic-{stage}"
    cluster.create_topic(others, 1)

    with pytest.raises(ZeroDivisionError):
        use_and_fail(cluster.bootstrap, stage)

    # A broker hears of a deletion after its controller has acknowledged it.
    with cluster.admin() as admin:
        wait_for(
            lambda: left(admin.list_topics(), stage) == [others], "the deletion", 20
        )
        groups = left(admin.list_groups(), stage)
    cluster.delete_topic(others)
    assert groups == []


def left(found: Iterable[object], stage: str) -> list[object]:
    return [one for one in found if stage in str(one)]


def use_and_fail(bootstrap: str, stage: str) -> None:
    with _broker(bootstrap) as broker:
        topic, group = stage + "orders", stage + "group"
        broker.create_topic(topic, 1)
        clients = Clients(broker)
        # A group may form before the broker tells of the topic; then it asks once more.
        soon = {"metadata_max_age_ms": 500}
        consumer = clients.consumer(KafkaConsumer, topic, group=group, **soon)
        while not consumer.assignment():
            consumer.poll(2_000)  # longer than a join takes
        clients.close()
        raise ZeroDivisionError


def test_what_is_left_behind_is_told(cluster: TidyCluster, stage: str) -> None:
    """One line that says what and where, for a person to clean up."""
    cluster.create_topic(stage + "orders", 1)
    cluster.delete_topic(stage + "orders")

    told = cluster.tidy()

    assert told is not None
    assert f"{PREFIX}-* may be left at {cluster.bootstrap}" in told


# The demo, which is CI's first step, plays each of them on the embedded broker.
@pytest.mark.nightly
def test_a_client_that_leaks_is_found_out_whatever_it_is_called(
    cluster: TidyCluster,
) -> None:
    """A stock one under our name is no better; a client that raises ends its own play."""
    lines: list[str] = []
    impostor = evolve(STOCK, title=SAFE.title, is_ours=True)
    broken = evolve(SAFE, make=int)
    with_both = evolve(FLAG, clients=(impostor, broken))
    leaking, raising = playing.play_all([with_both], cluster, lines.append)
    cluster.tidy()

    assert leaking.error is None
    assert Failure.LEAKED in leaking.failures
    counts = leaking.counts
    assert counts.produced == counts.while_paused + counts.when_wanted + counts.lost
    assert raising.error is not None
    assert "played again, the first time ended early: TypeError" in "\n".join(lines)
