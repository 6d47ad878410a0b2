"""The demo on its broker and on somebody's cluster; its referee believes no client."""

import pytest
from attrs import evolve
from click.testing import CliRunner
from kafka.errors import KafkaTimeoutError

from safeconsumer.cli import demo
from safeconsumer.cli.commands import safeconsumer
from safeconsumer.cli.errors import Status
from safeconsumer.demo import cluster, playing
from safeconsumer.demo.cluster import UsersCluster
from safeconsumer.demo.situations import SITUATIONS
from safeconsumer.demo.stage import RUN, SAFE, STOCK
from safeconsumer.demo.tally import Failure
from safeconsumer.testing import EmbeddedBroker

FLAG = next(one for one in SITUATIONS if one.name == "flag")
TOPIC_AUTHORIZATION_FAILED, POLICY_VIOLATION = 29, 44


def run(broker, *arguments):
    bootstrap = ",".join(broker.client_config["bootstrap_servers"])
    return CliRunner().invoke(
        safeconsumer, ["demo", "--bootstrap", bootstrap, *arguments]
    )


def left(broker):
    """Return what a cluster has of the demo's."""
    with UsersCluster(",".join(broker.client_config["bootstrap_servers"])).admin() as a:
        found = [*a.list_topics(), *(one["group_id"] for one in a.list_groups())]
    return [one for one in found if one.startswith(RUN)]


@pytest.mark.any_broker
def test_a_cluster_of_the_users_shows_the_same_and_keeps_nothing(kafka_broker):
    """Its names are shown; topics and groups are removed afterwards."""
    ended = run(kafka_broker, "--situation", "flag", "--situation", "group")
    assert ended.exit_code == Status.DONE, ended.output
    first, *_, said = ended.stdout.splitlines()
    assert f"{RUN}-*" in first
    assert f"named {RUN}-* are removed again" in ended.stdout
    assert said.startswith(
        "SafeConsumer leaked 0, lost 0 and duplicated 0 records in 2"
    )
    assert "KafkaConsumer failed in 1 of 1" in said
    assert left(kafka_broker) == []


@pytest.fixture
def interrupted(monkeypatch):
    def play(_, broker, __):
        broker.create_topic(f"{RUN}-7-orders", 1)
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "play_all", play)


@pytest.mark.usefixtures("interrupted")
def test_ctrl_c_removes_the_demos_topics():
    with EmbeddedBroker(brokers=3) as broker:
        ended = run(broker)
        assert ended.exit_code == Status.INTERRUPTED
        assert "are removed again" in ended.stdout
        assert left(broker) == []


@pytest.mark.usefixtures("interrupted")
def test_topics_that_may_not_be_removed_are_named():
    with EmbeddedBroker() as broker:
        broker.fail("DeleteTopics", error=TOPIC_AUTHORIZATION_FAILED)
        ended = run(broker)
    assert (
        f"remove them: {RUN}-7-orders (TopicAuthorizationFailedError)" in ended.stdout
    )


@pytest.mark.parametrize("error", [TOPIC_AUTHORIZATION_FAILED, POLICY_VIOLATION])
def test_a_cluster_in_which_it_may_create_nothing_is_one_line(error):
    with EmbeddedBroker() as broker:
        broker.fail("CreateTopics", error=error)
        ended = run(broker)
        assert left(broker) == []
    assert (ended.exit_code, ended.stdout) == (Status.REFUSED, "")
    assert ended.stderr.count("\n") == 1


def test_an_unreachable_cluster_is_one_line(monkeypatch):
    assert cluster._BOOTSTRAP_MS < 5000
    monkeypatch.setattr(cluster, "_BOOTSTRAP_MS", 200)
    arguments = ["demo", "--bootstrap", "127.0.0.1:1"]
    ended = CliRunner().invoke(safeconsumer, arguments)
    assert (ended.exit_code, ended.stdout) == (Status.UNREACHABLE, "")
    assert ended.stderr == "safeconsumer: no Kafka broker answers at 127.0.0.1:1\n"


def test_a_broker_that_goes_away_in_a_play_ends_the_demo(monkeypatch):
    """It is asked once; neither that play nor another one is tried."""
    plays = []
    with EmbeddedBroker() as broker:

        def play(stage):
            plays.append(stage.client.title)
            broker.stop()
            message = "Unable to bootstrap"
            raise KafkaTimeoutError(message)

        alone = evolve(FLAG, clients=(SAFE,), play=play)
        monkeypatch.setattr(demo, "SITUATIONS", [alone, alone])
        monkeypatch.setattr(cluster, "_BOOTSTRAP_MS", 200)
        ended = run(broker)
    assert (ended.exit_code, plays) == (Status.UNREACHABLE, [SAFE.title])
    assert "no Kafka broker answers at" in ended.stderr


# The demo, which is CI's first step, plays each of them on the embedded broker.
@pytest.mark.nightly
def test_a_client_that_leaks_is_found_out_whatever_it_is_called():
    """A stock one under our name is no better; a client that raises ends its own play."""
    lines = []
    impostor = evolve(STOCK, title=SAFE.title, is_ours=True)
    broken = evolve(SAFE, make=int)
    with_both = evolve(FLAG, clients=(impostor, broken))
    with EmbeddedBroker() as broker:
        leaking, raising = playing.play_all([with_both], broker, lines.append)

    assert leaking.error is None
    assert Failure.LEAKED in leaking.failures
    counts = leaking.counts
    assert counts.produced == counts.while_paused + counts.when_wanted + counts.lost
    assert raising.error is not None
    assert "played again, the first time ended early: TypeError" in "\n".join(lines)
