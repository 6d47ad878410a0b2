"""The faults: how each kind begins, and what heals it."""

from collections.abc import Callable

from attrs import field, frozen

from tests.system.soak.cluster import Cluster
from tests.system.soak.fleet import Fleet
from tests.system.soak.plan import Draw
from tests.system.soak.proxy import Proxy, Rule
from tests.system.soak.topics import Topics

# How often a cut takes everybody's connections, and for how long answers are held up.
_EVERYBODY = 0.2
_LEAST_DELAY, _MORE_DELAY = 0.1, 1.9

Heal = Callable[[], object]


@frozen(kw_only=True)
class Fault:
    targets: list[str]  # to whom: names of members, numbers of brokers, topics
    heal: Heal | None = None  # takes it back; None if nothing is to be
    is_slow: bool = False  # whether healing takes longer than the next fault can wait


@frozen(kw_only=True)
class Stage:
    """Everything that can be hurt, and what already is."""

    cluster: Cluster
    fleet: Fleet
    proxy: Proxy
    topics: Topics
    busy: set[str] = field(factory=set)  # targets of faults that are not healed yet

    def free_members(self) -> list[str]:
        return [name for name in self.fleet.names() if name not in self.busy]

    def free_brokers(self) -> list[str]:
        """Return the brokers that may be hurt: none while another one is."""
        names = [node.name for node in self.cluster.nodes]
        if self.busy & set(names) or not self.topics.are_in_sync():
            return []
        return names


# ---------------------------------------------------------------- members


def _kill(stage: Stage, draw: Draw) -> Fault | None:
    name = draw.of(stage.free_members())
    if name is None:
        return None
    stage.fleet.crowd.kill(name)
    return Fault(targets=[name], heal=lambda: stage.fleet.join(name))


def _freeze(stage: Stage, draw: Draw) -> Fault | None:
    name = draw.of(stage.free_members())
    if name is None:
        return None
    frozen = stage.fleet.crowd.there[name]
    frozen.freeze()
    return Fault(targets=[name], heal=frozen.thaw)


def _join(stage: Stage, draw: Draw) -> Fault | None:
    del draw
    if not stage.fleet.has_room():
        return None
    name = stage.fleet.join()
    return Fault(targets=[name], heal=lambda: stage.fleet.crowd.leave(name))


def _leave(stage: Stage, draw: Draw) -> Fault | None:
    name = draw.of(stage.free_members())
    if name is None or not stage.fleet.can_lose_one():
        return None
    stage.fleet.crowd.leave(name)
    return Fault(targets=[name], heal=lambda: stage.fleet.join(name))


# ---------------------------------------------------------------- the wire


def _cut(stage: Stage, draw: Draw) -> Fault | None:
    names = stage.free_members()
    if draw.strength > _EVERYBODY:
        names = [name for name in names if name == draw.of(names)]
    stage.proxy.cut(names)
    return Fault(targets=names) if names else None


def _rule(stage: Stage, rule: Rule, targets: list[str]) -> Fault:
    stage.proxy.begin(rule)
    return Fault(targets=targets, heal=lambda: stage.proxy.end(rule))


def _blackhole(stage: Stage, draw: Draw) -> Fault | None:
    name = draw.of(stage.free_members())
    if name is None:
        return None
    return _rule(stage, Rule(kind="blackhole", clients=(name,)), [name])


def _delay(stage: Stage, draw: Draw) -> Fault | None:
    seconds = _LEAST_DELAY + _MORE_DELAY * draw.strength
    rule = Rule(kind="delay", api=draw.api, seconds=seconds)
    return _rule(stage, rule, [draw.api])


def _reorder(stage: Stage, draw: Draw) -> Fault | None:
    return _rule(stage, Rule(kind="reorder", api=draw.api), [draw.api])


# ---------------------------------------------------------------- topics


def _partitions(stage: Stage, draw: Draw) -> Fault | None:
    topic = stage.topics.grow(draw)
    return None if topic is None else Fault(targets=[topic])


def _topic(stage: Stage, draw: Draw) -> Fault | None:
    del draw
    topic = stage.topics.create_one_more()
    return None if topic is None else Fault(targets=[topic])


# ---------------------------------------------------------------- brokers


def _coordinator(stage: Stage, draw: Draw) -> Fault | None:
    if not stage.free_brokers():
        return None
    moved = stage.topics.move_coordinator(draw)
    return None if moved is None else Fault(targets=[f"broker-{moved}"])


def _broker_kill(stage: Stage, draw: Draw) -> Fault | None:
    name = draw.of(stage.free_brokers())
    if name is None:
        return None
    node = stage.cluster.named(name)
    node.kill()
    return Fault(targets=[name], heal=node.restart, is_slow=True)


def _broker_freeze(stage: Stage, draw: Draw) -> Fault | None:
    name = draw.of(stage.free_brokers())
    if name is None:
        return None
    node = stage.cluster.named(name)
    node.freeze()
    return Fault(targets=[name], heal=node.unfreeze)


KINDS: dict[str, Callable[[Stage, Draw], Fault | None]] = {
    "kill": _kill,
    "freeze": _freeze,
    "join": _join,
    "leave": _leave,
    "cut": _cut,
    "blackhole": _blackhole,
    "delay": _delay,
    "reorder": _reorder,
    "partitions": _partitions,
    "topic": _topic,
    "coordinator": _coordinator,
    "broker-kill": _broker_kill,
    "broker-freeze": _broker_freeze,
}
