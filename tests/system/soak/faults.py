"""The faults: how each kind begins, and what heals it."""

from collections.abc import Callable

from attrs import field, frozen

from tests.harness.brokers.cluster import Cluster
from tests.system.soak.fleet import Fleet
from tests.system.soak.topics import Topics


@frozen
class Fault:
    target: str  # a member, or a broker
    heal: Callable[[], object]
    is_slow: bool = False  # whether healing takes longer than the next fault can wait


@frozen(kw_only=True)
class Stage:
    """Everything that can be hurt, and what already is."""

    cluster: Cluster
    fleet: Fleet
    topics: Topics
    busy: set[str] = field(factory=set)  # targets of faults that are not healed yet

    def begin(self, draw):
        """Do what was drawn; None if there is nothing to hurt in this way."""
        if draw.kind == "join":
            return _join(self.fleet) if self.fleet.has_room() else None
        is_of_brokers = draw.kind.startswith("broker")
        name = draw.of(self._free_brokers() if is_of_brokers else self._free_members())
        if name is None or (draw.kind == "leave" and not self.fleet.can_lose_one()):
            return None
        return _KINDS[draw.kind](self, name)

    def _free_members(self):
        return [name for name in self.fleet.names() if name not in self.busy]

    def _free_brokers(self):
        """Return the brokers that may be hurt: none while another one is."""
        names = [node.name for node in self.cluster.nodes]
        if self.busy & set(names) or not self.cluster.are_in_sync():
            return []
        return names


def _join(fleet):
    name = fleet.join()
    return Fault(name, lambda: fleet.crowd.leave(name))


def _kill(stage, name):
    stage.fleet.crowd.kill(name)
    return Fault(name, lambda: stage.fleet.join(name))


def _freeze(stage, name):
    one = stage.fleet.crowd.there[name]
    one.freeze()
    return Fault(name, one.thaw)


def _leave(stage, name):
    stage.fleet.crowd.leave(name)
    return Fault(name, lambda: stage.fleet.join(name))


def _broker_kill(stage, name):
    node = stage.cluster.named(name)
    node.kill()
    return Fault(name, node.restart, is_slow=True)


def _broker_freeze(stage, name):
    node = stage.cluster.named(name)
    node.freeze()
    return Fault(name, node.unfreeze)


_KINDS = {
    "kill": _kill,
    "freeze": _freeze,
    "leave": _leave,
    "broker-kill": _broker_kill,
    "broker-freeze": _broker_freeze,
}
