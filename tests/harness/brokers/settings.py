"""The settings of real brokers in tests."""

import os

# This variable changes the version of Apache Kafka that ``--kafka=java`` runs, as a
# nightly job does. It is a variable because programs that tests start read it, too.
VERSION_VARIABLE = "SAFECONSUMER_TEST_KAFKA_VERSION"
USUAL_VERSION = "4.1.0"
KAFKA_VERSION = os.environ.get(VERSION_VARIABLE) or USUAL_VERSION
# Any id will do; the storage is formatted with this one.
CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"

# Kafka's own property names.
TEST_SETTINGS = {
    # Kafka's defaults are 6 s and 3 s: every rebalance in a test would take as long.
    "group.min.session.timeout.ms": 1000,
    "group.initial.rebalance.delay.ms": 0,
    # The same for KIP-848, where these are the broker's settings.
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.session.timeout.ms": 2000,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 200,
    # The cluster has one broker.
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    # Kafka's default is 50 each, which makes the first commit slow.
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "num.partitions": 4,
    # The log cleaner looks every 15 s by default.
    "log.cleaner.backoff.ms": 500,
    # A restarted broker has to wait for the end of its old session, 9 s by default.
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
}

# Settings of a consumer of a group on such a broker.
GROUP_CONFIG = {"session_timeout_ms": 2000, "heartbeat_interval_ms": 200}

STARTED = "Kafka Server started"  # the line that KafkaRaftServer logs at INFO
START_TIMEOUT = 60.0
