"""Runs the public cases about lasting pauses on members that use each client."""

import sys
from contextlib import ExitStack
from itertools import product
from uuid import uuid4

import pytest
from kafka.admin import KafkaAdminClient

from safeconsumer import Control
from safeconsumer.group import topics
from safeconsumer.testing.cases.lab import Lab
from safeconsumer.testing.cases.process import Launch
from tests.harness.testing.catalogue import CASES
from tests.harness.trying import ENDS_WITH_THE_OWNERSHIP, OURS, Verdict, tried

pytestmark = pytest.mark.real_broker

# Only our consumer on kafka-python can pass its holds on to the next owner, and allows
# a signal handler to raise anywhere in a poll.
ABSENT = dict.fromkeys(
    ("pause-moves-with-its-partition", "time-limit-at-any-point-in-a-poll"),
    Verdict.ABSENT,
)
ASKS_WHAT_IS_PAUSED = (
    "paused-returns-only-quiet-partitions",
    "pausing-the-rest-while-another-owner-pauses-the-topic",
    "pausing-the-rest-while-another-owner-pauses-a-partition",
    "listener-pauses-the-rest",
)
"""The cases that call ``paused``, which confluent-kafka lacks."""

KNOWN = {
    "kafka_python": dict.fromkeys(ENDS_WITH_THE_OWNERSHIP, Verdict.LEAKS),
    "confluent": {
        **ABSENT,
        **dict.fromkeys(ASKS_WHAT_IS_PAUSED, Verdict.ABSENT),
    },
    "aiokafka": {
        **ABSENT,
        # aiokafka uses old offsets as positions in a recreated topic
        # (docs/how-to/aiokafka.md).
        "commit-after-paused-topic-was-recreated": Verdict.DIFFERS,
        "paused-topic-recreated-with-more-records": Verdict.DIFFERS,
    },
}
ADAPTERS = {
    "kafka_python": "tests.harness.group.cases_on_kafka_python:Adapter",
    "confluent": "tests.harness.group.confluent:Adapter",
    "aiokafka": "tests.harness.group.aiokafka:Adapter",
}
LOG_CUT = "log-truncated-while-no-member-reads"
"""A case that pauses nothing, and needs a broker that it can stop."""

RACES = {("confluent", "paused-topic-recreated-with-more-records")}
"""librdkafka uses the old offsets if it fetches before it notices the new topic."""

BY_DAY = {
    ("aiokafka", "paused-topic-is-unsubscribed-and-resubscribed"),
    ("aiokafka", "paused-partition-moves-and-returns"),
    ("confluent", "paused-partition-moves-and-returns"),
    ("kafka_python", "paused-partition-moves-and-returns"),
}
PLAYED = [
    pytest.param(*pair, marks=() if pair in BY_DAY else pytest.mark.nightly)
    for pair in product(KNOWN, sorted(CASES.keys() - {LOG_CUT}))
    if pair not in RACES
]


@pytest.fixture(scope="module")
def prefix(kafka_broker):
    """Create control topics for all members; return their prefix."""
    prefix = f"cases-{uuid4().hex[:8]}-"
    control = Control.prefixed(prefix)
    wanted = {"num_partitions": 1, "replication_factor": 1}
    settings = {
        control.holds_topic: topics.HOLDS_SETTINGS,
        str(control.status_topic): topics.STATUS_SETTINGS,
    }
    with KafkaAdminClient(**kafka_broker.client_config) as admin:
        for name, configs in settings.items():
            made = {name: {**wanted, "configs": dict(configs)}}
            admin.create_topics(made, wait_for_metadata=True)
    return prefix


@pytest.fixture(scope="module")
def lab_of(kafka_broker, prefix, tmp_path_factory):
    """Return a function that keeps one lab per client; its processes serve all cases."""
    labs, logs = {}, tmp_path_factory.mktemp("members")
    with ExitStack() as stack:

        def found(client):
            if client not in labs:
                launch = Launch(
                    adapter=ADAPTERS[client],
                    arguments=(prefix,),
                    path=tuple(sys.path),
                )
                lab = Lab(kafka_broker, launch, "range", logs / f"{client}.log")
                labs[client] = stack.enter_context(lab)
            return labs[client]

        yield found


@pytest.mark.contract("G9")
@pytest.mark.parametrize(("client", "case"), PLAYED)
def test_member_has_the_known_verdict_of_its_client(client, case, lab_of):
    outcome = tried(CASES[case], lab_of(client), OURS)
    assert outcome.verdict == KNOWN[client].get(case, Verdict.PASSES), outcome
