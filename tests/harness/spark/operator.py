"""Holds partitions and lifts the holds, as the operator of the group that streams obey."""

from contextlib import contextmanager

from attrs import evolve
from kafka import KafkaConsumer, TopicPartition

from safeconsumer.audit.checkpoint import checkpoint_of, judged
from safeconsumer.cli import checkpoints, waiting
from safeconsumer.cli.control_topics import read_control
from safeconsumer.group import operator
from safeconsumer.group.report_wire import STREAM, decode_report
from safeconsumer.holds import scope as scopes
from tests.harness.group.team import Team


class Operator:
    """An operator who writes and reads control topics of their own."""

    def __init__(self, broker):
        self.team = Team(broker, partitions=1, records=0)
        self.topic = self.team.settings.holds_topic
        self.group = self.team.group

    def hold(self, *scopes, for_=None):
        self.team.operator_holds(*scopes, for_=for_, reason="migration")

    def lift(self, *scopes):
        self.team.operator_lifts(*scopes)

    def options(self):
        """Return the options for a stream that obeys this operator."""
        return {
            "holds.control": "true",
            "holds.group": self.group,
            "holds.topic": self.topic,
            "holds.statusTopic": "",
            "holds.clockSkewMs": "500",
        }

    def reporting(self):
        """Return the options for a stream that obeys this operator and sends reports."""
        status = str(self.team.settings.status_topic)
        return {**self.options(), "holds.statusTopic": status}

    def judged(self, lake, since=0.0):
        """Judge a lake's checkpoint as if each hold had started ``since`` seconds earlier."""
        found = checkpoint_of("c", dict(checkpoints._read_local(lake.checkpoint)))
        control = read_control(lake.broker.client_config, self.topic)
        older = tuple(evolve(one, start=one.start - since) for one in control.spans)
        assert older
        return judged(found, evolve(control, spans=older), self.group)

    def obeying(self, code):
        """Return a page's code with this operator's topic and group inserted."""
        topic = f'option("holds.topic", "{self.topic}")'
        known = 'option("holds.control", "true")'
        code = code.replace(known, f"{known}.{topic}")
        return code.replace('"billing"', f'"{self.group}"')

    @contextmanager
    def looking(self):
        """Yield a function that tells whether a topic is quiet, as ``wait quiet`` does."""
        team = self.team
        with operator.Operator(team.broker.client_config, team.settings) as looking:

            def look(topic):
                view = looking.look(self.group)
                assert all(one.kind == STREAM for one in view.reports)
                return waiting.is_quiet(view, [scopes.topic(topic)])

            yield look

    def states(self):
        """Return all states that streams have reported, in order."""
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
