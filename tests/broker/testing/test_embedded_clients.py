"""Tests the embedded broker with other clients, with transactions and with admin clients."""

import asyncio

import aiokafka
import confluent_kafka
import pytest
from kafka import KafkaConsumer
from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    ResourcePatternFilter,
    ResourceType,
)
from kafka.errors import (
    InvalidConfigurationError,
    SecurityDisabledError,
    TopicAlreadyExistsError,
)

from safeconsumer.group import described_topics
from tests.harness.polling import read
from tests.harness.producing import produce

TIMEOUT = 20.0


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_librdkafka_writes_and_reads_with_each_codec(broker, codec):
    broker.create_topic("t", 2)
    servers = {"bootstrap.servers": broker.bootstrap}
    producer = confluent_kafka.Producer(
        {**servers, "compression.type": codec, "enable.idempotence": True}
    )
    for number in range(20):
        producer.produce("t", b"v" * 100 + b"%d" % number, partition=number % 2)
    assert producer.flush(TIMEOUT) == 0
    consumer = confluent_kafka.Consumer(
        {**servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["t"])
    got = []
    while len(got) < 20:
        got += consumer.consume(20 - len(got), TIMEOUT)
    consumer.commit(asynchronous=False)
    consumer.close()
    assert {len(one.value()) for one in got} == {101, 102}
    with KafkaAdminClient(**broker.client_config) as admin:
        offsets = admin.list_group_offsets("g")["g"]
    assert {tp.partition: one.offset for tp, one in offsets.items()} == {0: 10, 1: 10}


def test_aiokafka_reads_only_records_of_committed_transactions(broker):
    """The test aborts one transaction between two transactions that it commits."""
    broker.create_topic("t", 1)

    async def play():
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap, transactional_id="x"
        )
        consumer = aiokafka.AIOKafkaConsumer(
            "t",
            bootstrap_servers=broker.bootstrap,
            group_id="g",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        async with producer, consumer:
            for value, is_kept in ((b"a", True), (b"b", False), (b"c", True)):
                await producer.begin_transaction()
                await producer.send_and_wait("t", value)
                ends = (
                    producer.commit_transaction
                    if is_kept
                    else producer.abort_transaction
                )
                await ends()
            return [(await consumer.getone()).value for _ in range(2)]

    assert asyncio.run(asyncio.wait_for(play(), TIMEOUT)) == [b"a", b"c"]


def test_topic_reports_the_settings_of_its_creation(broker, admin):
    broker.create_topic("holds", 1, {"cleanup.policy": "compact"})
    broker.create_topic("orders", 3)
    holds, orders, nothing = described_topics.describe(
        admin, ("holds", "orders", "nope")
    )
    assert (holds.settings or {})["cleanup.policy"] == "compact"
    kept = (orders.settings or {})["retention.ms"]
    assert (orders.partitions, kept) == (3, "604800000")
    assert (nothing.partitions, nothing.settings) == (0, None)
    wanted = [ConfigResource(ConfigResourceType.TOPIC, "holds", ["cleanup.policy"])]
    assert admin.describe_configs(wanted)["topic"]["holds"].keys() == {"cleanup.policy"}


def test_embedded_broker_has_no_authorizer(admin):
    wanted = ACLFilter(
        principal=None,
        host=None,
        operation=ACLOperation.ANY,
        permission_type=ACLPermissionType.ANY,
        resource_pattern=ResourcePatternFilter(
            ResourceType.TOPIC, "orders", ACLResourcePatternType.MATCH
        ),
    )
    with pytest.raises(SecurityDisabledError):
        admin.describe_acls(wanted)


def test_refused_describe_configs_returns_no_settings(broker, admin):
    broker.create_topic("orders", 1)
    broker.fail("DescribeConfigs", "TOPIC_AUTHORIZATION_FAILED")
    (refused,) = described_topics.describe(admin, ("orders",))
    (answered,) = described_topics.describe(admin, ("orders",))
    assert (refused.settings, answered.settings is None) == (None, False)


class TestAdmin:
    def test_admins_can_create_topics(self, admin):
        one = {"t": {"num_partitions": 3, "configs": {"retention.ms": "1000"}}}
        admin.create_topics(one, validate_only=True)
        assert admin.list_topics() == []
        admin.create_topics(one)
        (topic,) = admin.describe_topics(["t"])
        assert len(topic["partitions"]) == 3
        with pytest.raises(TopicAlreadyExistsError):
            admin.create_topics(one)
        with pytest.raises(InvalidConfigurationError):
            admin.create_topics({"u": {"configs": {"retention": "1"}}})

    def test_group_can_be_deleted_once_its_members_have_left(self, clients, admin):
        topic = clients.topic(1)
        produce(clients.producer(), topic, 1)
        consumer = clients.consumer(KafkaConsumer, topic, group="g")
        read(consumer, 1)
        consumer.commit()
        answers = [admin.delete_groups(["g"])["g"]]
        consumer.close()
        answers += [admin.delete_groups(["g"])["g"] for _ in range(2)]
        assert answers == ["NonEmptyGroupError", "OK", "GroupIdNotFoundError"]
        assert admin.list_group_offsets("g") == {"g": {}}
