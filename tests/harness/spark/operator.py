"""Somebody who holds what streams read, by control topics."""

from safeconsumer.group.publisher import changes, new_hold, publish
from tests.harness.group.team import Team


class Operator:
    """Control topics of their own, and somebody who writes on them."""

    def __init__(self, broker):
        self.team = Team(broker, partitions=1, records=0)
        self.topic = self.team.settings.holds_topic
        self.group = self.team.group

    def hold(self, *scopes, for_=None):
        self._write(scopes, new_hold("migration", for_))

    def lift(self, *scopes):
        self._write(scopes, None)

    def _write(self, scopes, hold):
        wanted = changes(self.group, "alice", scopes, hold)
        publish(lambda: self.team.writer, self.topic, wanted, 10.0)

    def options(self):
        return {
            "holds.control": "true",
            "holds.group": self.group,
            "holds.topic": self.topic,
            "holds.statusTopic": "",
            "holds.clockSkewMs": "500",
        }
