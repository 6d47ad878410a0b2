"""
Tells when a workaround can go: kafka-python's own consumer still fails as it did.

Of each defect in design/upstream.md that this package works around, one test here puts
the stock client into it. A test that fails says that upstream has repaired the defect:
then what works around it may go, and its row in the table. Most of the situations are
our own regression tests, played with the other client.
"""

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, OffsetAndMetadata
from kafka.errors import FencedInstanceIdError, KafkaConnectionError, KafkaError
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.sasl import SaslAuthenticateRequest

from tests.broker.regression import (
    test_claims,
    test_forgotten_join,
    test_gained,
    test_listeners,
    test_lost_membership,
    test_rebalance_moves,
    test_subscription_changes,
)
from tests.harness.kafka.broken import KINDS
from tests.harness.regression import fixtures
from tests.harness.regression.choices import COOPERATIVE
from tests.harness.regression.lab import Lab
from tests.harness.regression.members import InListener
from tests.harness.regression.support import wait_until
from tests.harness.regression.wire import Wire

pytestmark = [pytest.mark.nightly, pytest.mark.embedded_broker]

lab = fixtures.lab
regression_producer = fixtures.regression_producer
regression_topics = fixtures.regression_topics

RANGE = {"assignor": "range", "how": "poll"}
UNKNOWN = {"answer": "UNKNOWN_MEMBER_ID"}

SITUATIONS: list[tuple[Callable[..., None], dict[str, Any]]] = [
    # Pauses end with the ownership, however it ends.
    (test_gained.test_the_loop_of_kafka_13463, RANGE),
    (test_lost_membership.test_max_poll_interval_exceeded, RANGE),
    (test_lost_membership.test_session_expired_at_the_broker, {"assignor": "range"}),
    (
        test_lost_membership.test_an_injected_heartbeat_error_ends_the_membership,
        {**UNKNOWN, "assignor": "range"},
    ),
    (
        test_rebalance_moves.test_a_partition_that_moves_away_and_back_is_still_paused,
        RANGE,
    ),
    (
        test_rebalance_moves.test_a_partition_that_moves_away_and_back_is_still_paused,
        {**RANGE, "assignor": COOPERATIVE},
    ),
    (
        test_subscription_changes.test_subscribed_away_and_back,
        {**RANGE, "way": "unsubscribe"},
    ),
    (test_subscription_changes.test_assigned_away_and_back, {"how": "poll"}),
    # A join that outlasts its poll is forgotten.
    (
        test_forgotten_join.test_a_changed_subscription_whose_join_outlasts_the_poll,
        RANGE,
    ),
    (test_forgotten_join.test_a_leader_whose_assignor_is_slow, RANGE),
    # The rest: see the table.
    (test_claims.test_a_member_that_was_lost_claims_nothing, {}),
    (test_claims.test_a_member_that_subscribes_again_claims_nothing, {}),
    (
        test_lost_membership.test_a_heartbeat_without_an_answer_is_no_reason_to_spin,
        {"how": "poll", "is_paused": False},
    ),
    (test_listeners.test_a_commit_in_a_listener_is_refused_with_what_works, {}),
]


@pytest.mark.parametrize(
    ("test", "case"), SITUATIONS, ids=lambda one: getattr(one, "__name__", None)
)
def test_the_stock_client_fails_our_regression_test(
    lab: Lab, test: Callable[..., None], case: dict[str, Any]
) -> None:
    """By an assertion: a set-up that is not reached raises something else."""
    with pytest.raises(AssertionError):
        test(lab, "stock", **case)


def member_at(lab: Lab, records: int, **config: Any) -> tuple[Any, Any]:  # noqa: ANN401 - kafka-python's
    """Return a stock consumer that has read all records of its partition, and that."""
    topic, (tp,) = lab.topic_with(each=records, partitions=1)
    reader = lab.reader("stock", topic, group=lab.name("g"), **config)
    reader.until_joined(reader.owns([tp]))
    reader.until(lambda: reader.consumer.position(tp) == records)
    return reader.consumer, tp


def test_a_member_that_missed_a_generation_goes_on_where_it_was(lab: Lab) -> None:
    """Whoever had the partition in that generation committed 4: 4 to 9 are not done."""
    consumer, tp = member_at(lab, 10)
    lab.broker.fail("SyncGroup", "REBALANCE_IN_PROGRESS")
    before = consumer._coordinator._generation
    consumer._coordinator.request_rejoin()
    consumer.commit({tp: OffsetAndMetadata(4, "", -1)})
    wait_until(
        lambda: (
            consumer.poll(100) == {}
            and consumer._coordinator._generation is not before
            and consumer.assignment()
        )
    )
    assert consumer.position(tp) == 10


def test_a_fenced_static_member_polls_on_and_nothing_tells_it(lab: Lab) -> None:
    """Its heartbeat loop only stops."""
    consumer, tp = member_at(lab, 1, group_instance_id=lab.name("static"))
    wire = Wire(consumer)
    lab.broker.fail("Heartbeat", "FENCED_INSTANCE_ID")
    wait_until(
        lambda: any(
            name == "Heartbeat" and response.error_code == FencedInstanceIdError.errno
            for name, response in list(wire.answered)
        )
    )
    assert [consumer.poll(10) for _ in range(4)] == [{}] * 4
    assert consumer.assignment() == {tp}


def test_what_unsubscribe_commits_is_refused(lab: Lab) -> None:
    """It is sent a moment later, as no member of the group: mostly too late."""
    lost = 0
    for _ in range(10):
        consumer, tp = member_at(lab, 10, enable_auto_commit=True)
        consumer.unsubscribe()
        lost += consumer.committed(tp) is None
    assert lost > 0


def test_unsubscribe_in_a_listener_changes_half_of_it_and_raises(lab: Lab) -> None:
    """The network call comes last."""
    topic, _ = lab.topic_with(each=1, partitions=1)
    consumer = lab.consumer("stock", group=lab.name("g"))
    seen: list[object] = []

    def leave(_assigned: object) -> None:
        with pytest.raises(RuntimeError):
            consumer.unsubscribe()
        seen.append(consumer.subscription())

    consumer.subscribe([topic], listener=InListener(assigned=leave))
    wait_until(lambda: consumer.poll(100) or seen)
    assert seen == [None]


def test_poll_raises_when_a_connection_breaks_before_a_pattern_subscriber_joins(
    lab: Lab,
) -> None:
    """It waits for metadata before it joins, and only a timeout is expected."""
    topic, (tp,) = lab.topic_with(each=1, partitions=1)
    consumer = lab.consumer("stock", group=lab.name("g"))
    consumer.subscribe(pattern=f"^{topic}$")
    wait_until(lambda: consumer.poll(100) or consumer.assignment() == {tp})
    lab.broker.fail("Metadata", "DISCONNECT")
    consumer._coordinator.request_rejoin()
    with pytest.raises(KafkaConnectionError):
        wait_until(lambda: consumer.poll(500) and None)


_STOCK = """
import os, signal, sys
from kafka import KafkaConsumer, TopicPartition
from tests.harness.kafka.fetches import answer, assigned
from tests.harness.kafka.offline import offline
from tests.harness.kafka.broken import KINDS, Picky
broken, error = KINDS[int(sys.argv[1])].values
tp = TopicPartition("orders", 0)
with offline(KafkaConsumer, value_deserializer=Picky()) as consumer:
    assigned(consumer, tp)
    consumer.seek(tp, 2)
    answer(consumer, tp, 2, broken)
    try:
        consumer.poll(0)
    except error:
        print("raised", flush=True)

    def spins(*_):
        print("spins", flush=True)
        os._exit(0)

    # Of its own processor time: a poll that does not wait takes a hundredth of that.
    signal.signal(signal.SIGVTALRM, spins)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.3)
    consumer.poll(0)
    print("returned", flush=True)
"""


@pytest.mark.timeout(180)  # a process that starts; its endless loop ends by itself
@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_a_poll_after_a_batch_that_cannot_be_read_never_returns(kind: int) -> None:
    """A batch whose generator has raised is asked for ever."""
    done = subprocess.run(  # noqa: S603 - our own interpreter, our own program
        [sys.executable, "-W", "ignore", "-c", _STOCK, str(kind)],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("raised\nspins\n", "")


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.DEBUG, logger="kafka"):
        yield caplog


def test_a_password_is_in_the_log(logged: pytest.LogCaptureFixture) -> None:
    """Every request is logged as sent; the admin client logs its settings."""
    secret = "guess-71d2ba90"  # noqa: S105 - to be found
    parser = KafkaProtocol(client_id="me")
    login = b"member\0member\0" + secret.encode()
    parser.send_request(SaslAuthenticateRequest(version=2, auth_bytes=login))
    parser.send_bytes()
    with pytest.raises(KafkaError):
        KafkaAdminClient(
            bootstrap_servers="127.0.0.1:1",
            bootstrap_timeout_ms=10,
            sasl_plain_password=secret,
        )
    names = {one.name for one in logged.records if secret in one.getMessage()}
    assert names == {"kafka.admin.client", "kafka.protocol.parser"}


def test_a_client_that_may_create_no_topics_asks_for_them_to_be_created(
    lab: Lab, logged: pytest.LogCaptureFixture
) -> None:
    """``allow_auto_create_topics=False`` does not reach the request."""
    consumer = lab.consumer("stock", allow_auto_create_topics=False)
    consumer.subscribe([lab.name("none")])
    consumer.poll(500)
    asked = [one.getMessage() for one in logged.records]
    assert any("allow_auto_topic_creation=True" in one for one in asked)
