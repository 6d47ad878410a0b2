"""Members on aiokafka that obey a group pass the public cases of what a pause outlives."""

import sys
from uuid import uuid4

import pytest
from kafka.admin import KafkaAdminClient

from safeconsumer import Control
from safeconsumer.group import topics
from safeconsumer.testing.cases.catalogue import CASES
from safeconsumer.testing.cases.lab import Lab
from safeconsumer.testing.cases.process import Launch
from tests.harness.trying import OURS, Verdict, tried

pytestmark = pytest.mark.real_broker

KNOWN = {
    # aiokafka takes the offsets of a recreated topic for positions (docs/how-to/aiokafka.md).
    "commit-after-recreation": Verdict.DIFFERS,
    "recreated-longer-while-paused": Verdict.DIFFERS,
    # A hold of a consumer does not travel; and a coroutine is cancelled, not interrupted.
    "follows-to-the-next-owner": Verdict.ABSENT,
    "time-limit-at-any-place-of-a-poll": Verdict.ABSENT,
}
LOG_CUT = "log-cut-while-away"
"""Nothing is paused in it, and it needs a broker that is stopped."""

BY_DAY = {"another-topic-and-back", "evicted-for-not-polling", "moves-and-returns"}
PLAYED = [
    pytest.param(case, marks=() if case in BY_DAY else pytest.mark.nightly)
    for case in sorted(CASES.keys() - {LOG_CUT})
]


@pytest.fixture(scope="module")
def lab(kafka_broker, tmp_path_factory):
    """Keep the processes from case to case; all obey the same control topics."""
    prefix = f"aio-{uuid4().hex[:8]}-"
    control = Control.prefixed(prefix)
    wish = {"num_partitions": 1, "replication_factor": 1}
    settings = {
        control.holds_topic: topics.HOLDS_SETTINGS,
        str(control.status_topic): topics.STATUS_SETTINGS,
    }
    with KafkaAdminClient(**kafka_broker.client_config) as admin:
        for name, configs in settings.items():
            made = {name: {**wish, "configs": dict(configs)}}
            admin.create_topics(made, wait_for_metadata=True)
    launch = Launch(
        adapter="tests.harness.group.aiokafka_cases:Adapter",
        arguments=(prefix,),
        path=tuple(sys.path),
    )
    log = tmp_path_factory.mktemp("conformance") / "aiokafka.log"
    with Lab(kafka_broker, launch, "range", log) as made:
        yield made


@pytest.mark.contract("G9")
@pytest.mark.parametrize("case", PLAYED)
def test_a_member_on_aiokafka_does_what_is_known_of_it(case, lab):
    outcome = tried(CASES[case], lab, OURS)
    assert outcome.verdict == KNOWN.get(case, Verdict.PASSES), outcome
