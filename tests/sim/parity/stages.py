"""
Plays scenarios in the simulated world or on a real cluster.

A scenario is written once, against Stage. A scenario records its observations as facts, which
must be the same on both. Scenarios wait for events and positions only: on the real cluster
time passes by itself.
"""

import threading
import uuid
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError
from kafka.net.compat import KafkaNetClient
from kafka.protocol.consumer import LeaveGroupRequest

from safeconsumer import SafeConsumer
from tests.harness.producing import write
from tests.harness.waiting import wait_for

CLIENTS = {"ours": SafeConsumer, "stock": KafkaConsumer}
PROTOCOLS = {"eager": RangePartitionAssignor, "cooperative": CooperativeStickyAssignor}
# Requests that come by the clock, or when a connection happens to be new.
_BY_CHANCE = {"ApiVersions", "Heartbeat", "Metadata"}
# Members learn quickly of a rebalance; a busy machine evicts no member.
_SESSION = {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 200}
LOADING = 14  # Kafka's code of COORDINATOR_LOAD_IN_PROGRESS
_ROUNDS = 3  # polls after everything was read, which must bring nothing more


SCENARIOS = {}
"""By its name, what is played, and with which protocols of groups."""


def both(play, protocols=("eager",)):
    """Play a scenario with both clients; groups, if any, are eager."""
    SCENARIOS[play.__name__] = play, protocols
    return play


def in_groups(play):
    """Play a scenario with both clients and both protocols."""
    return both(play, tuple(PROTOCOLS))


def cases():
    """Return every scenario with each client and protocol: the ids of tests."""
    return [
        (name, client, protocol)
        for name, (_, protocols) in SCENARIOS.items()
        for client in CLIENTS
        for protocol in protocols
    ]


class Stage:
    """
    The calls that a scenario may make, and its facts.

    Args:
        kind: a class of consumers.
        protocol: ``eager`` or ``cooperative``.

    Attributes:
        facts: the observations that are compared.
        group: the group of this scenario's members.
        connection: the settings by which any client finds the cluster.
    """

    connection: dict[str, Any]

    def __init__(self, kind, protocol, prefix=""):
        self.kind = kind
        self.facts = {}
        self.group = f"{prefix}group"
        self._prefix = prefix
        self._protocol = PROTOCOLS[protocol]
        self._counts = {}
        self._opened = []
        self._writer = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for one in reversed(self._opened):
            one.close()

    # Different in the two kinds of stage

    def until(self, condition, what):
        raise NotImplementedError

    def start(self, name, main):
        """Run a function in a thread."""
        raise NotImplementedError

    def clean(self):
        """Let the cluster compact its topics, if it does not by itself."""

    def refuse_joins(self):
        """Let the cluster refuse joins until the returned fault ends."""
        raise NotImplementedError

    # Topics and records

    def name(self, text):
        """Return a topic's name, which no other scenario on the cluster has."""
        return self._prefix + text

    def topic(self, text="t", partitions=1, records=0, settings=None):
        name = self.name(text)
        wanted = {"num_partitions": partitions, "replication_factor": 1}
        self.admin().create_topics(
            {name: {**wanted, "configs": settings or {}}}, wait_for_metadata=True
        )
        found = [TopicPartition(name, number) for number in range(partitions)]
        self._counts.update(dict.fromkeys(found, 0))
        if records:
            self.append(records, *found)
        return found

    def append(self, count, *partitions):
        """Append records; in each partition the values count on."""
        self.write(
            {"topic": tp.topic, "partition": tp.partition, "value": b"%d" % number}
            for tp in partitions
            for number in range(self._counts[tp], self._counts[tp] + count)
        )
        for tp in partitions:
            self._counts[tp] += count

    def write(self, records):
        """Write records, and return when all are acknowledged."""
        if self._writer is None:
            self._writer = self.producer()
            self._opened.append(self._writer)
        write(self._writer, list(records))

    def partitions(self):
        return list(self._counts)

    def end_of(self, tp):
        """Return how many records ``append`` has written to a partition."""
        return self._counts[tp]

    # Clients; they are closed at the end

    def admin(self):
        for one in self._opened:
            if isinstance(one, KafkaAdminClient):
                return one
        self._opened.append(KafkaAdminClient(**self.connection))
        return self._opened[-1]

    def producer(self, **settings):
        return KafkaProducer(**self.connection, **settings)

    def settings(self, kinds, **more):
        """Return a consumer's settings; the kinds of its requests go into a list."""
        return {
            **self.connection,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "metrics_enabled": False,  # a tenth of a world's CPU
            "group_id": self.group,
            "kafka_client": _noting(kinds),
            "partition_assignment_strategy": [self._protocol],
            **({} if more.get("group_id", "") is None else _SESSION),
            **more,
        }

    def consumer(self, *topics, **settings):
        """Make a consumer that the scenario polls itself; without a group by default."""
        kinds = []
        given = {"group_id": None, **settings}
        names = [self.name(one) for one in topics]
        one = Reader(self, self.kind(*names, **self.settings(kinds, **given)), kinds)
        self._opened.append(one)
        return one

    def member(self, *topics, **settings):
        """Start a member of the group, which polls in a thread of its own."""
        one = Member(self, [self.name(text) for text in topics], settings)
        self._opened.append(one)
        return one


def _noting(kinds):
    """Make network clients that record the kinds of their requests."""

    def make(**configs):
        client = KafkaNetClient(**configs)
        # kafka-python takes the setting and does not hand it on: a topic that was
        # deleted would be made again by any client that asks for it.
        client.cluster.config["allow_auto_create_topics"] = False
        send = client._manager.send

        def noted(request, *given, **more):
            kinds.append(type(request).__name__.removesuffix("Request"))
            return send(request, *given, **more)

        client._manager.send = noted
        return client

    return make


class Reader:
    """
    A consumer, the records that it got, and its requests.

    Attributes:
        records: partition and value of all its records.
    """

    def __init__(self, stage, consumer, kinds):
        self.stage = stage
        self.consumer = consumer
        self.records = []
        self._kinds = kinds

    def poll(self, **given):
        """Poll once; return how many records came."""
        batches = self.consumer.poll(100, **given)
        for tp, records in batches.items():
            self.records += [(tp, int(one.value)) for one in records]
        return sum(map(len, batches.values()))

    def read(self, count):
        """Poll until so many records have come in all; return the last ones' values."""
        began = len(self.records)

        def has_come():
            return len(self.records) >= count or self.poll() < 0

        self.stage.until(has_come, f"{count} records")
        return [value for _, value in self.records[began:]]

    def poll_until(self, condition, what):
        self.stage.until(lambda: condition() or self.poll() < 0, what)

    def settle(self):
        """Poll until all that may flow has been read, and no more comes."""
        self.poll_until(lambda: has_read_all(self), "all is read")
        for _ in range(_ROUNDS):
            self.poll()

    def values(self, tp):
        return [value for one, value in list(self.records) if one == tp]

    def kinds(self):
        """Return the kinds of its requests in the order of their first use."""
        return [one for one in dict.fromkeys(self._kinds) if one not in _BY_CHANCE]

    def generation(self):
        return int(self.consumer._coordinator._generation.generation_id)

    def is_settled(self):
        """Whether the consumer is a member, and no join is under way."""
        is_joining = self.consumer._coordinator.rejoining
        return self.generation() > 0 and not self.has_lost() and not is_joining

    def has_lost(self):
        """Whether the consumer knows that its membership has ended."""
        return bool(self.consumer._coordinator._generation.is_lost())

    def forget(self):
        """Let another client send LeaveGroup in its name, which ends its membership."""
        admin, member_id = self.stage.admin(), self.member_id()
        identity = LeaveGroupRequest.MemberIdentity(
            member_id=member_id, group_instance_id=None
        )
        request = LeaveGroupRequest(
            group_id=self.consumer.config["group_id"],
            member_id=member_id,
            members=[identity],
        )
        node = self.consumer._coordinator.coordinator_id
        node = int(str(node).removeprefix("coordinator-"))
        admin._manager.run(admin._manager.send, request, node)

    def member_id(self):
        return str(self.consumer._coordinator._generation.member_id)

    def close(self):
        self.consumer.close(autocommit=False)


def has_read_all(reader):
    """Tell whether every assigned partition that may flow was read to its end."""
    states = dict(reader.consumer._subscription.assignment)
    ours = isinstance(reader.consumer, SafeConsumer)
    quiet = reader.consumer.quiet() if ours else reader.consumer.paused()
    return bool(states) and all(
        state.position is not None and state.position.offset >= reader.stage.end_of(tp)
        for tp, state in states.items()
        if tp not in quiet
    )


class Member(Reader):
    """
    A member of the group that polls in a thread of its own until it is stopped.

    Among its settings, ``poll_ms`` is how long its polls wait once it owns something.

    Attributes:
        polls: how many polls have ended.
        error: the class of kafka-python's exception that ended them.
    """

    def __init__(self, stage, topics, settings):
        super().__init__(stage, None, [])
        self.polls = 0
        self.error = ""
        self._make = lambda: stage.kind(
            *topics, **stage.settings(self._kinds, **settings)
        )
        self._calls = []
        self._poll_ms = settings.pop("poll_ms", 50)
        self._is_over = self._has_ended = False
        stage.start(f"member-{len(stage._opened)}", self._live)
        stage.until(lambda: self.consumer is not None, "a member is there")

    def _live(self):
        self.consumer = self._make()
        try:
            while not self._is_over:
                self._turn()
        except KafkaError as error:
            self.error = type(error).__name__
        self.consumer.close(autocommit=False)
        self._has_ended = True

    def _turn(self):
        calls, self._calls = self._calls, []
        for call in calls:
            call()
        # Stock must not forget its first join: it waits for it in one poll.
        batches = self.consumer.poll(self._poll_ms if self._owns_any() else 1000)
        for tp, records in batches.items():
            self.records += [(tp, int(one.value)) for one in records]
        self.polls += 1

    def _owns_any(self):
        return bool(self.consumer.assignment())

    def call(self, function):
        """Call ``function(consumer)`` between two polls, in the thread that polls."""
        results = []

        def noted():
            try:
                results.append(function(self.consumer))
            except Exception as error:  # noqa: BLE001 - whatever the client raises
                results.append(error)

        self._calls.append(noted)
        self.stage.until(lambda: results, "a call between two polls")
        return results[0]

    def owns(self, count):
        """Wait until the member owns so many partitions, and no join is under way."""
        self.stage.until(
            lambda: len(self.consumer.assignment()) == count and self.is_settled(),
            f"{count} partitions",
        )

    def settle(self):
        """Wait until all that may flow has been read, and no more comes."""
        self.stage.until(lambda: has_read_all(self), "all is read")
        polls = self.polls
        self.stage.until(lambda: self.polls >= polls + _ROUNDS, "more polls")

    def close(self):
        """Let it close its consumer, and wait until its thread has ended."""
        self._is_over = True
        self.stage.until(lambda: self._has_ended, "a member has closed")


class SimStage(Stage):
    def __init__(self, lab, kind, protocol="eager"):
        super().__init__(kind, protocol)
        self.lab = lab
        self.connection = lab.connection

    def until(self, condition, what):
        """Wait in virtual time."""
        self.lab.until(condition, 120, what)

    def start(self, name, main):
        """Run a function in a process of its own."""
        self.lab.start(name, main)

    def clean(self):
        """Let half-second steps of time pass, as between two runs of a log cleaner."""
        self.lab.sleep(0.5)
        self.lab.cluster.clean()

    def refuse_joins(self):
        return self.lab.cluster.fail("JoinGroup", error=LOADING)


class RealStage(Stage):
    """A stage on a running cluster, which many scenarios share."""

    def __init__(self, broker, kind, protocol="eager"):
        super().__init__(kind, protocol, prefix=f"{uuid.uuid4().hex[:8]}-")
        self.connection = broker.client_config

    def until(self, condition, what):
        """Wait for a condition, however long other tests keep the machine busy."""
        wait_for(condition, what, 120)

    def start(self, name, main):
        """Run a function in a thread of this process."""
        threading.Thread(target=main, name=name, daemon=True).start()
