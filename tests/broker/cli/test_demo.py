"""Tests the demo on its own broker and on a user's cluster."""

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


def run(bootstrap, *arguments):
    return CliRunner().invoke(
        safeconsumer, ["demo", "--bootstrap", bootstrap, *arguments]
    )


def remains(bootstrap):
    """Return the demo's topics and groups that still exist on a cluster."""
    with UsersCluster(bootstrap).admin() as admin:
        groups = (one["group_id"] for one in admin.list_groups())
        found = [*admin.list_topics(), *groups]
    return [one for one in found if one.startswith(RUN)]


@pytest.mark.any_broker
def test_demo_on_a_users_cluster_has_the_same_results_and_leaves_no_topic(kafka_broker):
    bootstrap = ",".join(kafka_broker.client_config["bootstrap_servers"])
    ended = run(bootstrap, "--situation", "flag", "--situation", "group")
    assert ended.exit_code == Status.DONE, ended.output
    first, *_, last = ended.stdout.splitlines()
    assert f"{RUN}-*" in first
    assert f"named {RUN}-* are removed again" in ended.stdout
    assert last.startswith(
        "SafeConsumer leaked 0, lost 0 and duplicated 0 records in 2"
    )
    assert "KafkaConsumer failed in 1 of 1" in last
    assert remains(bootstrap) == []


@pytest.mark.parametrize("is_removable", [True, False])
def test_demo_removes_its_topics_after_ctrl_c_or_names_them(monkeypatch, is_removable):
    def play(_, broker, __):
        broker.create_topic(f"{RUN}-7-orders", 1)
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "play_all", play)
    with EmbeddedBroker(brokers=3) as broker:
        if not is_removable:
            broker.fail("DeleteTopics", error=TOPIC_AUTHORIZATION_FAILED)
        ended = run(broker.bootstrap)
        assert ended.exit_code == Status.INTERRUPTED
        if is_removable:
            assert "are removed again" in ended.stdout
            assert remains(broker.bootstrap) == []
        else:
            line = f"remove them: {RUN}-7-orders (TopicAuthorizationFailedError)"
            assert line in ended.stdout


@pytest.mark.parametrize("error", [TOPIC_AUTHORIZATION_FAILED, POLICY_VIOLATION])
def test_refused_topic_creation_ends_the_demo_with_one_line(error):
    with EmbeddedBroker() as broker:
        broker.fail("CreateTopics", error=error)
        ended = run(broker.bootstrap)
        assert remains(broker.bootstrap) == []
    assert (ended.exit_code, ended.stdout) == (Status.REFUSED, "")
    assert ended.stderr.count("\n") == 1


def test_demo_reports_an_address_without_a_broker_in_one_line(monkeypatch):
    assert cluster._BOOTSTRAP_MS < 5000
    monkeypatch.setattr(cluster, "_BOOTSTRAP_MS", 200)
    ended = run("127.0.0.1:1")
    assert (ended.exit_code, ended.stdout) == (Status.UNREACHABLE, "")
    assert ended.stderr == "safeconsumer: no Kafka broker answers at 127.0.0.1:1\n"


def test_broker_that_stops_during_a_situation_ends_the_demo(monkeypatch):
    """The demo does not play any further situation."""
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
        ended = run(broker.bootstrap)
    assert (ended.exit_code, plays) == (Status.UNREACHABLE, [SAFE.title])
    assert "no Kafka broker answers at" in ended.stderr


# The test is nightly, because the demo, which is CI's first step, plays each situation
# on the embedded broker.
@pytest.mark.nightly
def test_demo_reports_leaks_of_any_client_and_repeats_a_situation_that_raised():
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
    assert "played again, as the first play ended early: TypeError" in "\n".join(lines)
