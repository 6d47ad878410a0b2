"""Runs all public cases with our consumer and with kafka-python, and checks the verdicts."""

from contextlib import ExitStack
from itertools import product

import pytest

from safeconsumer.testing.cases.lab import Lab
from safeconsumer.testing.cases.process import launch_of
from tests.harness.brokers.java import JavaBroker
from tests.harness.testing.catalogue import CASES
from tests.harness.trying import OURS, is_known, tried

pytestmark = pytest.mark.real_broker

CLIENTS = {OURS: "safeconsumer:SafeConsumer", "stock": "kafka:KafkaConsumer"}
RACES = [("stock", "a-join-outlasts-its-poll")]
"""Cases that depend on a race; ``sim/test_joins`` forces the order where possible."""

LOG_CUT = "log-truncated-while-no-member-reads"
PAIRS = {
    pair for pair in product(CLIENTS, CASES) if pair not in RACES and pair[1] != LOG_CUT
}


@pytest.fixture(scope="session")
def lab_of(kafka_broker, tmp_path_factory):
    """Return a function that keeps one lab per client; its processes serve all cases."""
    labs = {}
    logs = tmp_path_factory.mktemp("conformance")
    with ExitStack() as stack:

        def found(client):
            if client not in labs:
                log, launch = logs / f"{client}.log", launch_of(CLIENTS[client])
                lab = Lab(kafka_broker, launch, "range", log)
                labs[client] = stack.enter_context(lab)
            return labs[client]

        yield found


@pytest.mark.contract("P1", "P4", "P5", "P6", "P7", "P8", "P9", "P11", "G7")
@pytest.mark.parametrize(("client", "case"), sorted(PAIRS))
def test_client_gets_the_recorded_verdict(client, case, lab_of):
    """A regression of our consumer fails the test, and so does a change in kafka-python."""
    outcome = tried(CASES[case], lab_of(client), client)
    assert is_known(outcome), outcome


@pytest.mark.java_brokers
@pytest.mark.contract("P20")
@pytest.mark.parametrize("client", CLIENTS)
def test_client_gets_the_recorded_verdict_on_a_truncated_log(client, tmp_path):
    """The test runs its own broker, which it kills and restarts."""
    launch = launch_of(CLIENTS[client])
    with JavaBroker() as broker, Lab(broker, launch, "range", tmp_path / "log") as lab:
        outcome = tried(CASES[LOG_CUT], lab, client)
    assert is_known(outcome), outcome
