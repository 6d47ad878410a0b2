"""
Runs scenarios, and the programs of ``idioms``, in the simulation or on a real cluster.

Scenarios and programs are written once, for a Stage. A scenario records its observations
as facts, which must be the same on both kinds of cluster. Scenarios and programs wait only
for events and positions, because the clock of the real cluster cannot be controlled.
"""

import threading
import uuid
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError
from kafka.net.compat import KafkaNetClient
from kafka.protocol.consumer import LeaveGroupRequest

from safeconsumer import SafeConsumer
from tests.harness.producing import write
from tests.harness.waiting import wait_for
from tests.sim import lab, reading

CLIENTS = (SafeConsumer, KafkaConsumer)
PROTOCOLS = {"eager": reading.EAGER, "cooperative": reading.COOPERATIVE}
# Requests that depend on the clock, or on whether a connection happens to be new.
_BY_CHANCE = {"ApiVersions", "Heartbeat", "Metadata"}
# Members notice a rebalance quickly, and a busy machine causes no eviction.
_SESSION = {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 200}
LOADING = 14  # Kafka's error code COORDINATOR_LOAD_IN_PROGRESS
_ROUNDS = 3  # polls after everything was read; they must return nothing more


SCENARIOS = {}
"""By name, each scenario and the group protocols with which it runs."""


def both(play, protocols=("eager",)):
    """Register a scenario for both clients; by default its group is eager."""
    SCENARIOS[play.__name__] = play, protocols
    return play


def in_groups(play):
    """Register a scenario for both clients and both protocols."""
    return both(play, tuple(PROTOCOLS))


def cases():
    """Return each scenario's name with each of its protocols."""
    return [
        (name, protocol)
        for name, (_, protocols) in SCENARIOS.items()
        for protocol in protocols
    ]


def common_cases():
    """Return one case of each scenario, with alternating protocols, for every run."""
    return [
        (name, protocols[turn % len(protocols)])
        for turn, (name, (_, protocols)) in enumerate(SCENARIOS.items())
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
        self._admin = self._writer = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for one in reversed(self._opened):
            one.close()

    # Different in the two kinds of stage

    def until(self, condition, what):
        raise NotImplementedError

    def start(self, name, main):
        """Run a function in a thread; return its simulated process (or None) and thread."""
        raise NotImplementedError

    def clean(self):
        """Make the cluster compact its topics, unless it does so automatically."""

    def refuse_joins(self):
        """Make the cluster refuse joins until the returned fault ends."""
        raise NotImplementedError

    # Topics and records

    def name(self, text):
        """Return a topic name that no other scenario on the cluster has."""
        return self._prefix + text

    def topic(self, text="t", partitions=1, records=0, settings=None):
        name = self.name(text)
        self._create(name, partitions, settings or {})
        found = [TopicPartition(name, number) for number in range(partitions)]
        self._counts.update(dict.fromkeys(found, 0))
        if records:
            self.append(records, *found)
        return found

    def _create(self, name, partitions, settings):
        wanted = {"num_partitions": partitions, "replication_factor": 1}
        self.admin().create_topics(
            {name: {**wanted, "configs": settings}}, wait_for_metadata=True
        )

    def append(self, count, *partitions):
        """Append records, whose values continue the count of each partition."""
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
            self._writer = self._closed_at_the_end(self.producer())
        write(self._writer, list(records))

    def partitions(self):
        return list(self._counts)

    def end_of(self, tp):
        """Return the number of records that ``append`` has written to a partition."""
        return self._counts[tp]

    # Clients, which are closed at the end

    def admin(self):
        if self._admin is None:
            made = KafkaAdminClient(**self.connection)
            self._admin = self._closed_at_the_end(made)
        return self._admin

    def producer(self, **settings):
        return KafkaProducer(**self.connection, **settings)

    def settings(self, **more):
        """Return a consumer's settings, with those of a session if it has a group."""
        return {
            **self.connection,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "metrics_enabled": False,  # metrics take a tenth of a world's CPU time
            "kafka_client": _noting_kinds,
            **({} if more["group_id"] is None else _SESSION),
            **more,
        }

    def consumer(self, *topics, **settings):
        """Create a consumer that the scenario itself polls; by default it has no group."""
        names = [self.name(one) for one in topics]
        given = {"group_id": None, "assignor": self._protocol, **settings}
        return self._closed_at_the_end(Reader(self, self.kind, *names, **given))

    def member(self, *topics, **settings):
        """Start a member of the group, which polls in its own thread."""
        names = [self.name(one) for one in topics]
        given = {
            "group_id": self.group,
            "assignor": self._protocol,
            "max_poll_records": 500,
            "poll_ms": 50,
            **settings,
        }
        name = f"member-{len(self._opened)}"
        return self._closed_at_the_end(Member(self, self.kind, names, name, given))

    def _closed_at_the_end(self, one):
        self._opened.append(one)
        return one


def _noting_kinds(**configs):
    """Create a network client that records the kinds of its requests."""
    client = KafkaNetClient(**configs)
    # kafka-python accepts the setting but does not pass it on, so any client that
    # requests a deleted topic would create the topic again.
    client.cluster.config["allow_auto_create_topics"] = False
    client.kinds, send = [], client._manager.send

    def noted(request, *given, **more):
        client.kinds.append(type(request).__name__.removesuffix("Request"))
        return send(request, *given, **more)

    client._manager.send = noted
    return client


class Inspected:
    """Gives a scenario access to its consumer's membership, requests and progress."""

    lab: Any
    consumer: Any

    def kinds(self):
        """Return the kinds of the consumer's requests in the order of their first use."""
        kinds = self.consumer._client.kinds
        return [one for one in dict.fromkeys(kinds) if one not in _BY_CHANCE]

    def generation(self):
        return int(self.consumer._coordinator._generation.generation_id)

    def member_id(self):
        return str(self.consumer._coordinator._generation.member_id)

    def is_settled(self):
        """Return whether the consumer is a member, and no join is in progress."""
        coordinator = self.consumer._coordinator
        is_lost = coordinator._generation.is_lost()
        return self.generation() > 0 and not is_lost and not coordinator.rejoining

    def forget(self):
        """End the membership with a LeaveGroup that another client sends in its name."""
        admin, member_id = self.lab.admin(), self.member_id()
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

    def has_read_all(self):
        """Return whether every assigned partition that is not quiet was read to its end."""
        states = dict(self.consumer._subscription.assignment)
        ours = isinstance(self.consumer, SafeConsumer)
        quiet = self.consumer.quiet() if ours else self.consumer.paused()
        return bool(states) and all(
            state.position is not None and state.position.offset >= self.lab.end_of(tp)
            for tp, state in states.items()
            if tp not in quiet
        )


class Reader(Inspected, reading.Reader):
    """A consumer that its scenario polls; without a group by default."""

    def until(self, condition, limit=500, each=0.1):
        """Poll until a condition is true."""
        self.lab.until(
            lambda: condition() or self.poll(each, limit) is None,
            "the condition of a reader",
        )

    def read(self, count):
        """Poll until ``count`` records have arrived in total; return the new values."""
        began = len(self.log)
        self.until(lambda: len(self.log) >= count)
        return [int(one.value) for one in self.log[began:]]

    def settle(self):
        """Poll until all partitions except quiet ones are read and no more records arrive."""
        self.until(self.has_read_all)
        for _ in range(_ROUNDS):
            self.poll()

    def values(self, tp):
        return [int(one.value) for one in self.log if (one.topic, one.partition) == tp]

    def close(self):
        self.consumer.close(autocommit=False)


class Member(Inspected, lab.Member):
    """
    A member of the group that polls in its own thread until it is stopped.

    Attributes:
        polls: the number of finished polls.
        error: the class name of the kafka-python exception that ended the polls.
    """

    polls, error = 0, ""

    def _live(self):
        try:
            super()._live()
        except KafkaError as error:
            self.error = type(error).__name__
            self.consumer.close(autocommit=False)

    def _poll(self, milliseconds):
        # The stock client must not forget its first join, so its first poll waits for
        # the join.
        super()._poll(milliseconds if self.consumer.assignment() else 1000)
        self.polls += 1

    def owns(self, count):
        """Wait until the member owns this many partitions, and no join is in progress."""
        self.lab.until(
            lambda: len(self.consumer.assignment()) == count and self.is_settled(),
            what=f"{count} partitions",
        )

    def settle(self):
        """Wait until all partitions except quiet ones are read and no more records arrive."""
        self.lab.until(self.has_read_all, what="all is read")
        polls = self.polls
        self.lab.until(lambda: self.polls >= polls + _ROUNDS, what="more polls")

    close = lab.Member.stop


class SimStage(Stage):
    def __init__(self, lab, kind, protocol="eager"):
        super().__init__(kind, protocol)
        self.lab = lab
        self.connection = lab.connection

    def until(self, condition, what):
        """Wait in virtual time."""
        self.lab.until(condition, what=what)

    def start(self, name, main):
        return self.lab.start(name, main)

    def clean(self):
        """Sleep half a second, as between two runs of a log cleaner, and compact."""
        self.lab.sleep(0.5)
        self.lab.cluster.clean()

    def refuse_joins(self):
        return self.lab.cluster.fail("JoinGroup", error=LOADING)


class BareStage(SimStage):
    """A simulated stage that creates topics and records without clients, which is quicker."""

    def _create(self, name, partitions, settings):
        self.lab.cluster.create_topic(name, partitions, settings)

    def write(self, records):
        """Append records directly to their partitions."""
        for one in records:
            self.lab.cluster.append(one["topic"], one["partition"], [one["value"]])


class RealStage(Stage):
    """A stage on a running cluster, which many scenarios share."""

    def __init__(self, broker, kind, protocol="eager"):
        super().__init__(kind, protocol, prefix=f"{uuid.uuid4().hex[:8]}-")
        self.connection = broker.client_config

    def until(self, condition, what):
        """Wait in real time."""
        wait_for(condition, what)

    def start(self, name, main):
        thread = threading.Thread(target=main, name=name, daemon=True)
        thread.start()
        return None, thread
