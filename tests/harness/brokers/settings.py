"""Defines the settings for real brokers in tests."""

import os

# This variable, which a nightly job sets, selects the version of Apache Kafka for
# ``--kafka=java``. It is not a pytest option, because programs that tests start also
# read it.
VERSION_VARIABLE = "SAFECONSUMER_TEST_KAFKA_VERSION"
USUAL_VERSION = "4.1.0"
KAFKA_VERSION = os.environ.get(VERSION_VARIABLE) or USUAL_VERSION
# The storage is formatted with this id; any other valid id would do, too.
CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"

# The names are Kafka's own property names.
TEST_SETTINGS = {
    # Kafka's defaults are 6 s and 3 s, which would delay every rebalance in a test.
    "group.min.session.timeout.ms": 1000,
    "group.initial.rebalance.delay.ms": 0,
    # Groups that use KIP-848 need the same, but take their timeouts from the broker's
    # settings.
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.session.timeout.ms": 2000,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 200,
    # The cluster has only one broker.
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    # Kafka's default is 50 each, which makes the first commit slow.
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "num.partitions": 4,
    # By default the log cleaner checks for work only every 15 s.
    "log.cleaner.backoff.ms": 500,
    # A restarted broker waits until its old session has timed out, which by default
    # takes 9 s.
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
}

# The settings of a consumer that uses a group on such a broker.
GROUP_CONFIG = {"session_timeout_ms": 2000, "heartbeat_interval_ms": 200}

STARTED = "Kafka Server started"  # the line that KafkaRaftServer logs at INFO
START_TIMEOUT = 60.0
