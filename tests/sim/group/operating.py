"""Control topics in a simulated cluster, operators' holds on them, and who looks."""

from safeconsumer import Control
from safeconsumer.group import clients, topics
from safeconsumer.group import operator as operators
from safeconsumer.group.publisher import changes, new_hold, publish
from safeconsumer.holds.scope import ALL
from tests.sim.lab import GROUP

CONTROL = Control(holds_topic="ops", status_topic="status")


class Operator:
    """Makes the control topics, and writes operators' holds."""

    def __init__(self, lab):
        lab.cluster.create_topic("ops", 1, topics.HOLDS_SETTINGS)
        lab.cluster.create_topic("status", 1, topics.STATUS_SETTINGS)
        self._lab = lab

    def hold(self, *scopes, group=GROUP, for_=None):
        """Place holds; of the whole group, if no scope is named."""
        self._publish(group, scopes, new_hold("test", for_))

    def lift(self, *scopes, group=GROUP):
        """Lift them."""
        self._publish(group, scopes, None)

    def _publish(self, group, scopes, hold):
        writer = clients.producer(self._lab.settings(), 10.0)
        change = changes(group, "alice", [*scopes] or ["@all"], hold)
        try:
            publish(lambda: writer, "ops", change, 10.0)
        finally:
            writer.close()

    def write(self, *records):
        """Write whatever keys and values, as no version of ours would."""
        writer = clients.producer(self._lab.settings(), 10.0)
        for key, value in records:
            writer.send("ops", key=key, value=value, partition=0)
        writer.flush()
        writer.close()

    def looking(self):
        """Return the connection of a command."""
        return operators.Operator(self._lab.connection, CONTROL)

    def quietness(self):
        """Tell which members are known to obey."""
        with self.looking() as looking:
            return looking.look(GROUP).quietness([ALL])

    def wait_until_quiet(self, scope=ALL, seconds=100.0):
        """Look, less and less often, until members are known to obey."""
        end, pause = self._lab.now + seconds, 0.2
        with self.looking() as looking:
            while not looking.look(GROUP).quietness([scope]).is_reached:
                assert self._lab.now < end, f"not quiet within {seconds:g} s"
                self._lab.sleep(pause)
                pause *= 1.1
