"""Somebody who holds what streams read, by control topics."""

from kafka import KafkaConsumer, TopicPartition

from safeconsumer.group.publisher import changes, new_hold, publish
from safeconsumer.group.report_wire import decode_report
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

    def reports(self):
        """Return the option with which a stream reports."""
        return {"holds.statusTopic": str(self.team.settings.status_topic)}

    def states(self):
        """Return the states that streams have reported, in order."""
        tp = TopicPartition(str(self.team.settings.status_topic), 0)
        consumer = KafkaConsumer(**self.team.broker.client_config)
        found = []
        try:
            consumer.assign([tp])
            consumer.seek_to_beginning(tp)
            (end,) = consumer.end_offsets([tp]).values()
            while consumer.position(tp) < end:
                found += consumer.poll(200).get(tp, [])
        finally:
            consumer.close()
        return [decode_report(one.value).state for one in found if one.value]
