"""An operator's hold stops a fleet and a stream alike: control topics, in the driver."""

from collections import Counter

import pytest
from kafka.admin import ACLOperation, KafkaAdminClient, ResourceType
from kafka.errors import KafkaError

from safeconsumer.errors import HoldsUnreadableError
from safeconsumer.spark.control import ControlFollower
from safeconsumer.spark.java_clients import JavaClients
from tests.harness.brokers import choice
from tests.harness.group.secured import PASSWORDS, SecuredBroker, allow
from tests.harness.spark.lake import until
from tests.harness.spark.operator import Operator
from tests.harness.waiting import retried

pytestmark = [pytest.mark.spark, pytest.mark.real_broker, pytest.mark.timeout(400)]


@pytest.fixture
def operator(kafka_broker):
    made = Operator(kafka_broker)
    with made.team:
        yield made


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
def test_what_was_acknowledged_before_a_plan_is_obeyed_by_it(following, operator):
    """S1: never by luck: each of 100 holds and 100 lifts is seen by the very next plan."""
    for _ in range(100):
        operator.hold("orders")
        assert following.fresh().covers(("orders", 0))
        operator.lift("orders")
        assert not following.fresh().covers(("orders", 0))


@pytest.mark.nightly
def test_a_topic_that_is_made_again_is_read_from_its_beginning(following, operator):
    """What is held stays so until it is lifted there; and it is longer than before."""
    operator.hold("orders")
    assert following.fresh().covers(("orders", 0))
    operator.team.broker.delete_topic(operator.topic)
    retried(
        lambda: operator.team.create(operator.topic, {"cleanup.policy": "compact"}),
        KafkaError,
        limit=60,
    )
    for _ in range(5):
        operator.hold("returns")
    found = following.fresh()
    assert found.covers(("returns", 0))
    assert found.covers(("orders", 0))
    assert [str(one.scope) for one in following.seen().kept] == ["orders"]


@pytest.fixture(scope="module")
def secured():
    with SecuredBroker() as broker:
        yield broker


@pytest.mark.skipif(choice.why_no_java() is not None, reason="its own broker is Java")
def test_a_stream_reads_the_control_topics_with_its_own_login(spark, secured):
    """SASL and ACLs: what it may not read is said, and no password is."""
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    known = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    mine = f'{login} username="member" password="{PASSWORDS["member"]}";'
    wrong = f'{login} username="member" password="hunter2";'
    operator = Operator(secured)
    with operator.team as team:
        operator.hold("orders")
        member = follow(spark, operator, sasl_jaas_config=mine, **known)
        with pytest.raises(HoldsUnreadableError) as caught:
            member.fresh()
        assert f"no right to read {operator.topic}" in str(caught.value)
        assert "control acls prints the ACLs" in str(caught.value)
        read = ACLOperation.READ
        acls = allow("member", ResourceType.TOPIC, operator.topic, read)
        with KafkaAdminClient(**team.broker.client_config) as admin:
            admin.create_acls(acls)
        assert member.fresh().covers(("orders", 0))
        member.close()
        other = follow(spark, operator, sasl_jaas_config=wrong, **known)
        with pytest.raises(HoldsUnreadableError, match="could not be read") as caught:
            other.fresh()
        assert "hunter2" not in str(caught.value)
        other.close()


@pytest.mark.nightly
def test_control_topics_that_are_missing_hold_everything(lake, operator):
    """S4: said in the progress; the query lives, and goes on when they are there."""
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
