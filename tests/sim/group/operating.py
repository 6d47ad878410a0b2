"""Control topics in a simulated cluster, their operator, and members that obey holds."""

import functools
import inspect

from attrs import evolve
from kafka.structs import TopicPartition

from safeconsumer import Control, SafeConsumer
from safeconsumer.group import clients, topics
from safeconsumer.group import operator as operators
from safeconsumer.group.publisher import Change, changes, new_hold, publish
from safeconsumer.group.wire import ControlHold, ControlKey, Reset
from safeconsumer.holds.scope import ALL
from tests.sim.lab import GROUP
from tests.sim.playing import simulated

CONTROL = Control(holds_topic="ops", status_topic="status")
# Members with these settings send no reports. A killed member's producer would have
# unsent reports, and would log them when it is garbage-collected during a later test.
SILENT = Control(holds_topic="ops", status_topic=None)
QUICK = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 1000}

T = TopicPartition("t", 0)


class Operator:
    """Creates the control topics, writes holds, and starts members of the group."""

    def __init__(self, lab):
        lab.cluster.create_topic("ops", 1, topics.HOLDS_SETTINGS)
        lab.cluster.create_topic("status", 1, topics.STATUS_SETTINGS)
        self.lab = lab
        self._members = []

    def member(self, name="a", *subscribed, **settings):
        """Start a member that obeys the control topics, and stops at the test's end."""
        settings = {"name": name, "control": CONTROL, **settings}
        made = self.lab.member(SafeConsumer, *subscribed or ["t"], **settings)
        self._members.append(made)
        return made

    def stop_members(self):
        for one in self._members:
            if not one.process.is_dead:
                one.stop()

    # ------------------------------------------------------------ holds

    def hold(self, *scopes, group=GROUP, for_=None):
        """Place holds, on the whole group if no scope is named."""
        hold = new_hold("test", for_)
        self._publish(changes(group, "alice", scopes or ["@all"], hold))

    def lift(self, *scopes, group=GROUP, owner="alice"):
        self._publish(changes(group, owner, scopes or ["@all"], None))

    def reset(self, offsets, *, scope="t", owner="alice", topic_ids=(), hold_id="h1"):
        """Write the record of a hold, with the offsets to which partitions are moved."""
        to = tuple((*tp, offset) for tp, offset in sorted(offsets.items()))
        hold = ControlHold(hold_id, "test", reset=Reset(to, tuple(topic_ids)))
        self._publish([Change(ControlKey(GROUP, owner, scope), hold)])

    def _publish(self, wanted):
        writer = clients.producer(self.lab.settings(), 10.0)
        try:
            publish(lambda: writer, "ops", wanted, 10.0)
        finally:
            writer.close()

    def write(self, *records):
        """Write keys and values that no version of this package writes."""
        writer = clients.producer(self.lab.settings(), 10.0)
        for key, value in records:
            writer.send("ops", key=key, value=value, partition=0)
        writer.flush()
        writer.close()

    # ------------------------------------------------------------ views

    def looking(self):
        """Return an operator's connection, like that of a command."""
        return operators.Operator(self.lab.connection, CONTROL)

    def view(self):
        with self.looking() as looking:
            return looking.look(GROUP)

    def quietness(self):
        return self.view().quietness([ALL])

    def wait_until_quiet(self, scope=ALL, seconds=100.0):
        """Check at growing intervals until all members are known to obey."""
        end, pause = self.lab.now + seconds, 0.2
        with self.looking() as looking:
            while not looking.look(GROUP).quietness([scope]).is_reached:
                assert self.lab.now < end, f"not quiet within {seconds:g} s"
                self.lab.sleep(pause)
                pause *= 1.1


def operated(seeds=1, **world):
    """Run a test as ``simulated`` does; the test may take ``lab`` and ``operator``."""

    def decorate(test):
        @functools.wraps(test)
        def scenario(lab, **given):
            operator = Operator(lab)
            ours = {"lab": lab, "operator": operator}
            test(**given, **{name: ours[name] for name in taken.keys() & ours.keys()})
            operator.stop_members()

        taken = inspect.signature(test).parameters
        others = [one for name, one in taken.items() if name not in {"lab", "operator"}]
        lab = inspect.Parameter("lab", inspect.Parameter.POSITIONAL_ONLY)
        others = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in others]
        scenario.__signature__ = inspect.Signature([lab, *others])
        return simulated(seeds, **world)(scenario)

    return decorate


def cut_off(lab, name):
    """Withhold responses from a member's control clients; return the faults."""
    return [
        lab.cluster.fail(api, is_held=True, client_id=f"{name}-control")
        for api in ("ListOffsets", "Fetch")
    ]


def latecomer(lab, operator):
    """Start a member that owns a partition, and cannot read the control topics."""
    faults = cut_off(lab, "b")
    b = operator.member("b")
    b.owns(1)
    (owned,) = b.consumer.assignment()
    lab.until(lambda: b.consumer._subscription.delivered_position(owned) is not None)
    return b, faults


def read(*members):
    """Return the number of records that members have received."""
    return sum(len(one.records) for one in members)


def quiet(*members):
    return all(one.consumer.quiet() == one.consumer.assignment() for one in members)


def moved(lab, targets):
    """Return whether the group has committed the targets."""
    return all(lab.committed(tp) == offset for tp, offset in targets.items())


def commit_elsewhere(lab, offset):
    """Change the committed offset, as a transaction or a later owner would."""
    kept = lab.cluster.offsets._committed[GROUP]
    kept[T.topic, T.partition] = evolve(kept[T.topic, T.partition], offset=offset)


def since(one, tp, count):
    """Return the values that a member has read from a partition after the first ``count``."""
    return one.values(tp)[count:]


def at_work(lab, operator, **settings):
    """Return a member that has read the ten records of a topic."""
    lab.topic("t", records=10)
    one = operator.member(**{"enable_auto_commit": True, **settings})
    lab.until(lambda: len(one.records) == 10)
    return one


def held(lab, operator, **settings):
    """Return a member that has read ten records and obeys a hold of their topic."""
    one = at_work(lab, operator, **settings)
    operator.hold("t")
    lab.until(lambda: quiet(one))
    return one
