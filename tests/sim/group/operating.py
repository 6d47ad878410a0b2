"""Control topics in a simulated cluster, operators' holds on them, and who looks."""

from collections.abc import Iterable

from kafka import KafkaProducer

from safeconsumer import Control
from safeconsumer.group import clients, topics
from safeconsumer.group import operator as operators
from safeconsumer.group.judging import Judge, Quietness
from safeconsumer.group.publisher import changes, new_hold, publish
from safeconsumer.group.wire import ControlHold
from safeconsumer.holds.scope import Everything
from tests.sim.lab import GROUP, Lab

CONTROL = Control(operator_topic="ops", group_topic="own", status_topic="status")


class Operator:
    """Makes the control topics, and writes operators' holds."""

    def __init__(self, lab: Lab) -> None:
        for name in ("ops", "own"):
            lab.cluster.create_topic(name, 1, topics.HOLDS_SETTINGS)
        lab.cluster.create_topic("status", 1, topics.STATUS_SETTINGS)
        self._lab = lab

    def hold(self, *scopes: str, group: str = GROUP, for_: float | None = None) -> None:
        """Place holds; of the whole group, if no scope is named."""
        self._publish(group, scopes, new_hold("test", for_))

    def lift(self, *scopes: str, group: str = GROUP) -> None:
        """Lift them."""
        self._publish(group, scopes, None)

    def _publish(
        self, group: str, scopes: Iterable[str], hold: ControlHold | None
    ) -> None:
        writer: KafkaProducer = clients.producer(self._lab.settings(), 10.0)
        change = changes(group, "alice", [*scopes] or ["@all"], hold)
        publish(lambda: writer, "ops", change, 10.0)
        writer.close()

    def write(self, *records: tuple[bytes, bytes | None], topic: str = "ops") -> None:
        """Write whatever keys and values, as no version of ours would."""
        writer: KafkaProducer = clients.producer(self._lab.settings(), 10.0)
        for key, value in records:
            writer.send(topic, key=key, value=value, partition=0)
        writer.flush()
        writer.close()

    def looking(self) -> operators.Operator:
        """Return the connection of a command."""
        return operators.Operator(self._lab.connection, CONTROL)

    def quietness(self) -> Quietness:
        """Tell which members are known to obey."""
        with self.looking() as looking:
            return Judge(looking.look(GROUP)).quietness([Everything()])
