"""Tests that a stream's driver reads the control topics and obeys operators' holds."""

import time
from collections import Counter
from contextlib import closing, nullcontext

import pytest
from kafka.admin import ACLOperation, KafkaAdminClient, ResourceType
from kafka.errors import KafkaError

from safeconsumer.audit.checkpoint import checkpoint_of
from safeconsumer.cli import checkpoints
from safeconsumer.cli.errors import Status
from safeconsumer.errors import CheckpointError, HoldsUnreadableError
from safeconsumer.spark.control import ControlFollower
from safeconsumer.spark.java_clients import JavaClients
from tests.harness.brokers import choice
from tests.harness.group.secured import PASSWORDS, SecuredBroker, allow
from tests.harness.group.team import run
from tests.harness.members import Polled
from tests.harness.polling import poll_until
from tests.harness.spark.lake import progress, until
from tests.harness.spark.operator import Operator
from tests.harness.waiting import retried

pytestmark = [pytest.mark.spark, pytest.mark.real_broker, pytest.mark.timeout(400)]


@pytest.fixture
def following(spark, operator):
    made = follow(spark, operator)
    yield made
    made.close()


def follow(spark, operator, timeout=10.0, **properties):
    bootstrap = {"bootstrap.servers": operator.team.broker.bootstrap}
    named = {name.replace("_", "."): one for name, one in properties.items()}
    return ControlFollower(
        JavaClients(spark.sparkContext._gateway.jvm, {**bootstrap, **named}),
        operator.topic,
        operator.group,
        skew=0.5,
        timeout=timeout,
        hooks=(),
    )


@pytest.mark.contract("S1")
def test_every_plan_obeys_all_acknowledged_holds_and_lifts(following, operator):
    """S1: the test places and lifts a hold 100 times, and the next plan obeys each change."""
    for _ in range(100):
        operator.hold("orders")
        assert following.current_holds().covers(("orders", 0))
        operator.lift("orders")
        assert not following.current_holds().covers(("orders", 0))


@pytest.mark.nightly
def test_recreated_holds_topic_is_read_from_its_start(following, operator):
    """The new topic has more records than the old; a hold that it lacks stays in force."""
    operator.hold("orders")
    assert following.current_holds().covers(("orders", 0))
    operator.team.broker.delete_topic(operator.topic)
    retried(
        lambda: operator.team.create(operator.topic, {"cleanup.policy": "compact"}),
        KafkaError,
        limit=60,
    )
    for _ in range(5):
        operator.hold("returns")
    found = following.current_holds()
    assert found.covers(("returns", 0))
    assert found.covers(("orders", 0))
    assert [str(one.scope) for one in following.status().kept] == ["orders"]


@pytest.mark.contract("S8")
def test_deleted_topic_does_not_hide_offsets_and_ids_of_other_topics(spark, operator):
    """A missing partition of an existing topic does not hide other offsets and ids either."""
    bootstrap = {"bootstrap.servers": operator.team.broker.bootstrap}
    cluster = JavaClients(spark.sparkContext._gateway.jvm, bootstrap).cluster()
    names = [operator.topic, "deleted"]
    several = [(operator.topic, 0), (operator.topic, 7), ("deleted", 0)]
    with closing(cluster):
        limit = time.monotonic() + 20.0
        assert cluster.topic_ids(names, limit).keys() == {operator.topic}
        assert cluster.firsts(several, limit) == {(operator.topic, 0): 0}
        assert time.monotonic() < limit


@pytest.fixture(scope="module")
def secured():
    with SecuredBroker() as broker:
        yield broker


@pytest.mark.skipif(choice.why_no_java() is not None, reason="its own broker is Java")
def test_stream_reads_the_control_topics_with_its_own_login(spark, secured):
    """Without ACLs an error names the unreadable topic; no error contains the password."""
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    known = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    mine = f'{login} username="member" password="{PASSWORDS["member"]}";'
    wrong = f'{login} username="member" password="hunter2";'
    operator = Operator(secured)
    with operator.team as team:
        operator.hold("orders")
        member = follow(spark, operator, sasl_jaas_config=mine, **known)
        with pytest.raises(HoldsUnreadableError) as caught:
            member.current_holds()
        assert f"no right to read {operator.topic}" in str(caught.value)
        assert "control acls prints the ACLs" in str(caught.value)
        read = ACLOperation.READ
        acls = allow("member", ResourceType.TOPIC, operator.topic, read)
        with KafkaAdminClient(**team.broker.client_config) as admin:
            admin.create_acls(acls)
        assert member.current_holds().covers(("orders", 0))
        member.close()
        other = follow(spark, operator, sasl_jaas_config=wrong, **known)
        with pytest.raises(HoldsUnreadableError, match="could not be read") as caught:
            other.current_holds()
        assert "hunter2" not in str(caught.value)
        other.close()


@pytest.mark.nightly
def test_missing_control_topics_hold_all_partitions(lake, operator):
    """S4: the query's progress names the missing topic; once it exists, the query reads."""
    options = operator.options()
    options["holds.topic"] = late = f"late-{operator.topic}"
    options["holds.controlTimeoutMs"] = "1000"
    lake.produce(lake.orders, 10)
    query = lake.start(trigger={"processingTime": "200 milliseconds"}, **options)
    until(lambda: late in str(query.lastProgress), query)
    assert lake.rows() == Counter()
    operator.team.create(late, {"cleanup.policy": "compact"})
    until(lambda: lake.rows() == lake.produced(), query)
    query.stop()


@pytest.mark.contract("S5")
@pytest.mark.nightly
def test_audit_judges_a_stream_by_its_checkpoint(lake, operator, monkeypatch):
    """The audit reports the batches that the official source has read from a held topic."""
    lake.produce_both(5)
    lake.run(**operator.options())
    operator.hold(lake.orders)
    lake.produce_both(5)
    lake.run(**operator.options())
    rows = operator.judged(lake)
    assert len(rows) == 2 * lake.partitions
    assert not [row for row in rows if row.violations or row.unjudged]
    lake.run(format_="kafka")
    assert lake.rows() == lake.produced()
    doubted = [row.topic for row in operator.judged(lake) if row.unjudged]
    assert doubted == [lake.orders] * lake.partitions
    guilty = [row for row in operator.judged(lake, since=1e6) if row.violations]
    assert [row.topic for row in guilty] == [lake.orders] * lake.partitions
    monkeypatch.setattr(checkpoints, "session", lambda _: nullcontext(lake.spark))
    here = checkpoint_of("c", dict(checkpoints._read_local(lake.checkpoint)))
    by_spark = checkpoints._read_by_spark(lake.checkpoint.as_uri(), "local[1]")
    assert checkpoint_of("c", dict(by_spark)) == here
    with pytest.raises(
        CheckpointError, match=r"gone/offsets cannot be read: .*PATH_NOT"
    ):
        list(checkpoints._read_by_spark(f"{lake.checkpoint}/gone", "local[1]"))


def operate(operator, *arguments):
    ended = run(operator.team, *arguments, "--group", operator.group)
    assert (ended.exit_code, ended.stderr) == (Status.DONE, ""), ended.output
    return ended.stdout


def ends(query):
    """Return the end offsets of a stream's next plan, by topic and partition."""
    before = query.lastProgress
    until(lambda: query.lastProgress != before, query)
    return progress(query)[-1]["sources"][0]["endOffset"]


@pytest.mark.nightly
@pytest.mark.contract("G10")
def test_reset_names_the_stream_of_the_group_but_does_not_reset_it(lake, operator):
    """The reset sets the member's offsets; ``wait moved`` does not wait for the stream."""
    team, topic, alice = operator.team, lake.orders, ("--owner", "alice")
    member = team.member("a", control=team.quick)
    member.subscribe([topic])
    lake.produce(topic, 5)
    trigger = {"processingTime": "200 milliseconds"}
    query = lake.start(trigger=trigger, **operator.reporting())
    until(lambda: lake.rows() == lake.produced(), query)
    came = {}
    poll_until(member, lambda: sum(map(len, came.values())) == 20, got=came)
    member.commit()
    with Polled(member):
        operate(operator, "pause", topic, *alice, "--reason", "x", "--wait", "60s")
        before = ends(query)
        lake.produce(topic, 5)
        asked = ("reset-offsets", topic, *alice, "--to", "2")
        assert "stream is a stream: its offsets do not move" in operate(
            operator, *asked
        )
        operate(operator, "wait", "moved", "--timeout", "60s")
        assert ends(query) == before
        assert lake.rows() != lake.produced()
    operate(operator, "resume", topic, *alice)
    came = {}
    poll_until(member, lambda: sum(map(len, came.values())) == 32, got=came)
    assert {tuple(offsets) for offsets in came.values()} == {tuple(range(2, 10))}
    until(lambda: lake.rows() == lake.produced(), query)
    query.stop()
