"""An operator's hold stops a fleet and a stream alike: control topics, in the driver."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from kafka.admin import ACLOperation, KafkaAdminClient, ResourceType

from safeconsumer.errors import HoldsUnreadableError
from safeconsumer.group.publisher import changes, new_hold, publish
from safeconsumer.group.settings import Control
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.scope import TopicPartition
from safeconsumer.holds.view import Holds
from safeconsumer.spark.control import ControlFollower
from safeconsumer.spark.opening import Opening
from safeconsumer.spark.options import parse as options_of
from tests.harness.brokers import choice
from tests.harness.group.secured import PASSWORDS, SecuredBroker, allow
from tests.harness.group.team import Team
from tests.harness.spark.lake import Lake
from tests.harness.spark.waiting import until

REAL = [pytest.mark.spark, pytest.mark.real_broker, pytest.mark.timeout(400)]


class Operator:
    """Control topics of their own, and somebody who writes on them."""

    def __init__(self, broker: Any) -> None:  # noqa: ANN401 - any kind
        self.team = Team(broker, partitions=1, records=0)
        self.topics = self.team.settings.topics
        self.group = self.team.group

    def hold(self, *scopes: str, for_: float | None = None) -> None:
        self._write(scopes, new_hold("migration", for_))

    def lift(self, *scopes: str) -> None:
        self._write(scopes, None)

    def _write(self, scopes: tuple[str, ...], hold: Any) -> None:  # noqa: ANN401 - or None
        wanted = changes(self.group, "alice", scopes, hold)
        publish(lambda: self.team.writer, self.topics[0], wanted, 10.0)

    def options(self) -> dict[str, str]:
        return {
            "holds.control": ",".join(self.topics),
            "holds.group": self.group,
            "holds.clockSkewMs": "500",
        }


@pytest.fixture
def operator(kafka_broker: Any) -> Any:  # noqa: ANN401 - any kind
    made = Operator(kafka_broker)
    with made.team:
        yield made


def follower(operator: Operator, timeout: float = 10.0) -> ControlFollower:
    settings = Control(
        operator_topic=operator.topics[0],
        group_topic=operator.topics[1],
        status_topic=None,
        trust_topic=operator.team.settings.trust_topic,
        client_configs=operator.team.settings.client_configs,
    )
    config = operator.team.broker.client_config
    return ControlFollower(settings, operator.group, config, timeout=timeout, hooks=())


def covered(follower: ControlFollower, tp: TopicPartition) -> bool:
    return follower.fresh().covers(tp)


@pytest.mark.any_broker
def test_what_was_acknowledged_before_a_plan_is_obeyed_by_it(
    operator: Operator,
) -> None:
    """S1: never by luck: each of 100 holds and 100 lifts is seen by the very next plan."""
    following = follower(operator)
    try:
        for _ in range(100):
            operator.hold("orders")
            assert covered(following, ("orders", 0))
            operator.lift("orders")
            assert not covered(following, ("orders", 0))
    finally:
        following.close()


@pytest.mark.any_broker
def test_without_the_control_topics_nothing_can_be_told(operator: Operator) -> None:
    """S4; the message names the topics and what to do."""
    operator.topics = ("nowhere-ops", "nowhere-own")
    following = follower(operator, timeout=0.5)
    try:
        with pytest.raises(HoldsUnreadableError, match=r"nowhere-ops.*control init"):
            following.fresh()
    finally:
        following.close()


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredBroker]:
    with SecuredBroker() as broker:
        yield broker


@pytest.mark.real_broker
@pytest.mark.skipif(choice._why_no_java() is not None, reason="its own broker is Java")
class TestWithPasswords:
    """SASL/PLAIN and ACLs: the driver reads the control topics as a principal."""

    def follow(self, operator: Operator, user: str, **more: str) -> str | Holds:
        """Return the holds that a plan sees, or why it sees none."""
        jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        options = {
            **operator.options(),
            "kafka.bootstrap.servers": operator.team.broker.bootstrap,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f'{jaas} username="{user}" '
            f'password="{PASSWORDS[user]}";',
            "holds.controlTimeoutMs": "8000",
            **more,
        }
        stream = Opening(PauseLedger()).stream("s", options_of(options))
        (following,) = stream._followers
        try:
            return following.fresh()
        except HoldsUnreadableError as error:
            return str(error)
        finally:
            following.close()

    def test_a_stream_reads_the_control_topics_with_its_own_login(
        self, secured: SecuredBroker
    ) -> None:
        """kafka.* is the stream's; holds.control.kafka.* wins over it."""
        operator = Operator(secured)
        with operator.team as team:
            operator.hold("orders")
            refused = self.follow(operator, "member")
            assert isinstance(refused, str)
            assert "TopicAuthorizationFailedError" in refused
            assert f"no right to read {operator.topics[0]}" in refused
            assert "control acls prints the ACLs" in refused
            acls = [
                one
                for name in operator.topics
                for one in allow("member", ResourceType.TOPIC, name, ACLOperation.READ)
            ]
            with KafkaAdminClient(**team.broker.client_config) as admin:
                admin.create_acls(acls)
            held = self.follow(operator, "member")
            assert isinstance(held, Holds)
            assert held.covers(("orders", 0))
            jaas = 'x required username="member" password="wrong";'
            more = {"holds.control.kafka.sasl.jaas.config": jaas}
            wrong = self.follow(operator, "member", **more)
            assert isinstance(wrong, str)
            assert "wrong" not in wrong
            assert "could not be read within 8 s" in wrong


class TestOnSpark:
    """The same, in a running stream."""

    pytestmark: ClassVar = REAL

    def test_an_operator_holds_and_lifts_a_stream(
        self, lake: Lake, operator: Operator
    ) -> None:
        """S1, S2; through a restart under the hold."""
        operator.hold(lake.orders)
        lake.produce(lake.orders, 20)
        lake.produce(lake.returns, 20)
        for _ in range(2):
            lake.run(**operator.options())
            assert lake.rows() == lake.produced(lake.returns)
            lake.produce(lake.returns, 20)
        operator.lift(lake.orders)
        lake.run(**operator.options())
        assert lake.rows() == lake.produced()

    def test_control_topics_that_are_missing_hold_everything(
        self, lake: Lake, operator: Operator
    ) -> None:
        """S4: said in the progress; the query lives, and goes on when they are there."""
        options = operator.options()
        names = [f"late-{name}" for name in operator.topics]
        options["holds.control"] = ",".join(names)
        options["holds.controlTimeoutMs"] = "1000"
        lake.produce(lake.orders, 10)
        query = lake.start(trigger={"processingTime": "200 milliseconds"}, **options)
        until(lambda: names[0] in str(query.lastProgress), query)
        assert lake.rows() == Counter()
        for name in names:
            operator.team.create(name, {"cleanup.policy": "compact"})
        until(lambda: lake.rows() == lake.produced(), query)
        query.stop()
