"""Runs a consumer group that obeys holds, its operator, and commands, on any broker."""

import json
from contextlib import ExitStack
from functools import cached_property
from uuid import uuid4

from attrs import evolve
from click.testing import CliRunner
from kafka import KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import TopicAlreadyExistsError

from safeconsumer import Control, SafeConsumer
from safeconsumer.cli.commands import safeconsumer
from safeconsumer.group import clients, topics
from safeconsumer.group.operator import Operator
from safeconsumer.group.publisher import changes, new_hold, publish
from tests.harness.holds.lab import EventLog
from tests.harness.members import Polled, has_positions, is_shared_out
from tests.harness.polling import poll_until
from tests.harness.producing import produce
from tests.harness.waiting import retried
from tests.sim.threads import world

LIMIT = 20.0


class Team:
    """A group with control topics and a topic with records; it closes its members."""

    def __init__(self, broker, partitions=4, records=5, topic=None):
        self.broker = broker
        self.group = f"group-{uuid4().hex[:8]}"
        self.topic = topic or f"orders-{uuid4().hex[:8]}"
        # In a simulation fetches wait as long as by default, because a wait takes no
        # real time, but each fetch takes CPU time.
        is_hurried = not self.is_real and world() is None
        self.settings = Control.prefixed(
            f"{self.group}_",
            clock_skew=0.5,
            client_configs={"fetch_max_wait_ms": 50} if is_hurried else {},
        )
        self.partitions = [TopicPartition(self.topic, n) for n in range(partitions)]
        self._emitted = {}
        self._closing = ExitStack()
        self.create(self.settings.holds_topic, topics.HOLDS_SETTINGS)
        self.create(str(self.settings.status_topic), topics.STATUS_SETTINGS)
        # A topic with a fixed name may still exist until the test that used it has
        # deleted it.
        retried(
            lambda: broker.create_topic(self.topic, partitions),
            TopicAlreadyExistsError,
            limit=60,
        )
        if topic is not None:
            self._closing.callback(broker.delete_topic, topic)
        self.producer = KafkaProducer(**broker.client_config)
        self._closing.callback(self.producer.close, timeout=2)
        self.writer = clients.producer(broker.client_config, 10.0)
        self._closing.callback(self.writer.close, timeout=2)
        self.produce(records)

    @property
    def prefix(self):
        """The prefix of the control topics, for the commands' option ``--topic-prefix``."""
        return self.settings.holds_topic.removesuffix("holds_ops")

    @property
    def is_real(self):
        return getattr(self.broker, "kind", "") != "embedded"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._closing.close()

    # ------------------------------------------------------------ topics

    def create(self, name, settings):
        if not self.is_real:
            self.broker.create_topic(name, 1, settings)
            return
        topic = {
            "num_partitions": 1,
            "replication_factor": -1,
            "configs": dict(settings),
        }
        with KafkaAdminClient(**self.broker.client_config) as admin:
            admin.create_topics({name: topic}, wait_for_metadata=True)

    def produce(self, records=1):
        each = [records] * len(self.partitions)
        produce(self.producer, self.topic, *each, limit=LIMIT)

    # ------------------------------------------------------------ members

    def member(self, name="a", **configs):
        events = EventLog()
        control = configs.pop("control", self.settings)
        consumer = SafeConsumer(
            **{
                **self.broker.client_config,
                **self.broker.group_config,
                "session_timeout_ms": 10_000,  # long enough for a busy machine
                "group_id": self.group,
                "client_id": name,
                "auto_offset_reset": "earliest",
                "enable_auto_commit": False,
                "hooks": (events,),
                "control": control,
                **configs,
            }
        )
        self._emitted[id(consumer)] = events
        self._closing.callback(consumer.close, autocommit=False, timeout_ms=2000)
        return consumer

    def emitted(self, consumer):
        """Return the log of the events that a member has emitted."""
        return self._emitted[id(consumer)]

    def subscribed(self, name="a", **configs):
        consumer = self.member(name, **configs)
        consumer.subscribe([self.topic])
        return consumer

    def ready(self, name="a", **configs):
        """Return a member that owns all partitions and has read the control topics."""
        consumer = self.subscribed(name, **configs)
        self.settled(consumer)
        return consumer

    def with_settings(self, **changed):
        return evolve(self.settings, **changed)

    @property
    def quick(self):
        """The control settings of members that report often."""
        return self.with_settings(status_interval=0.3)

    def has_all(self, consumer):
        return lambda: consumer.assignment() == set(self.partitions)

    def is_quiet(self, consumer):
        return lambda: consumer.quiet() == set(self.partitions)

    def is_ungated(self, consumer):
        return bool(consumer.assignment()) and not consumer._safe_ledger.control_gates()

    def settled(self, consumer):
        """Poll until the member owns all partitions and has read the control topics."""
        ready = self.has_all(consumer)
        return poll_until(consumer, lambda: ready() and self.is_ungated(consumer))

    def catch_up(self, consumer):
        """Poll until a member has all five records of each partition; then commit."""
        got, each = self.settled(consumer), dict.fromkeys(self.partitions, 5)
        poll_until(consumer, lambda: {tp: len(got[tp]) for tp in got} == each, got=got)
        consumer.commit()

    def committed(self):
        """Return the group's committed offsets by partition number."""
        with KafkaAdminClient(**self.broker.client_config) as admin:
            (found,) = admin.list_group_offsets([self.group]).values()
        return {tp.partition: one.offset for tp, one in sorted(found.items())}

    # ------------------------------------------------------------ the operator

    @cached_property
    def _operator(self):
        made = Operator(self.broker.client_config, self.settings)
        return self._closing.enter_context(made)

    def look(self):
        """Return the current view of the group, over a connection that stays open."""
        return self._operator.look(self.group)

    def are_quiet(self, names, partitions):
        """Return whether all these partitions are quiet according to the owners' reports."""
        members = [
            one for one in self.look().members if one.is_listed and one.name in names
        ]
        is_obeyed = all(one.claimed & {*partitions} <= one.quiet for one in members)
        quiet = set().union(*(one.quiet for one in members))
        return is_obeyed and quiet >= {*partitions}

    def operator_holds(self, *scopes, for_=None, owner="alice", reason="test"):
        return self._write(scopes, owner, new_hold(reason, for_))

    def operator_lifts(self, *scopes, owner="alice"):
        self._write(scopes, owner, None)

    def _write(self, scopes, owner, hold):
        wanted = changes(self.group, owner, scopes, hold)
        return publish(lambda: self.writer, self.settings.holds_topic, wanted, 10.0)

    def write_raw(self, topic, key, value):
        return self.writer.send(topic, key=key, value=value, partition=0)


def settled(team, *names, plain=()):
    """Make members; wait until they share the topic and know their positions."""
    members = [team.subscribed(name, control=team.quick) for name in names]
    members += [team.subscribed(name, control=None) for name in plain]
    with Polled(*members[1:]):
        poll_until(
            members[0],
            lambda: (
                is_shared_out(members, team.partitions)
                and all(map(has_positions, members))
            ),
        )
    return members


def run(team, *arguments):
    """Run a command against the team's cluster and control topics."""
    return CliRunner().invoke(safeconsumer, [*arguments, *where(team)])


def where(team):
    """Return the options that name a team's cluster and control topics."""
    return [
        *("--bootstrap", ",".join(team.broker.client_config["bootstrap_servers"])),
        *("--topic-prefix", team.prefix),
    ]


def past(team):
    """Return the holds and lifts that the command ``history`` prints."""
    return json.loads(run(team, "history", "-o", "json").stdout)["records"]
