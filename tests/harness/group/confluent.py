"""Makes members of a team that use confluent-kafka; needs the extra ``ci``."""

import itertools
import time
from types import SimpleNamespace

import confluent_kafka
from attrs import evolve
from kafka import TopicPartition

from safeconsumer import Control
from safeconsumer.clients.confluent import Consumer
from safeconsumer.testing.cases.outcomes import AbsentError
from tests.harness.group.blocking import Blocking, CasesAdapter, Running

NEWER = "consumer"  # the protocol in which brokers assign partitions (KIP-848)
_TIMEOUT = 10.0


def settings_of(team, name="a", protocol="range"):
    """Return the settings of confluent-kafka for a member of a team."""
    settings = {
        "bootstrap.servers": ",".join(team.broker.client_config["bootstrap_servers"]),
        "group.id": team.group,
        "client.id": name,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    if protocol == NEWER:
        return {**settings, "group.protocol": protocol}
    return {
        **settings,
        "partition.assignment.strategy": protocol,
        "session.timeout.ms": 10_000,
        "heartbeat.interval.ms": 300,
    }


def confluent(team, name="a", protocol="range", *, control=None, kind=Consumer, **more):
    """Make a member; ignore the control settings that apply to kafka-python's clients."""
    own, other = {}, {}
    for key, value in more.items():
        (own if key in {"hooks", "log"} else other)[key.replace("_", ".")] = value
    if isinstance(control, Control):
        control = evolve(control, client_configs={})
    settings = {**settings_of(team, name, protocol), **other}
    return kind(settings, control=control, **{"log": False, **own})


def ConfluentMember(team, name, protocol=NEWER, control=None, **more):  # noqa: N802 - it makes one
    """
    Make a member that is polled on a thread of its own.

    Args:
        team: the cluster, the group and the topic of the member.
        name: the member's client id.
        protocol: the member's assignor, or ``consumer`` for KIP-848.
        control: the control topics that the member obeys; with None the member ignores
            holds and does not report, like a plain client.
        more: further settings of the client.
    """
    consumer = confluent(team, name, protocol, control=control, **more)
    return Running(BlockingConsumer(consumer), team.topic)


class BlockingConsumer(Blocking):
    """A consumer with kafka-python's methods, except for ``paused``."""

    def __init__(self, consumer):
        self.consumer = consumer
        self._turns = itertools.count()

    def close(self):
        self.consumer.close()

    def poll(self, timeout_ms, max_records=None):
        """
        Return the records of ``poll`` and ``consume``, called alternately; skip errors.

        Without ``max_records`` the method makes only one call, because the next call
        would tell the client that the program has processed the records of the first.
        """
        seconds, most = timeout_ms / 1000, max_records or 1
        if next(self._turns) % 2 and max_records is None:
            messages = self.consumer.consume(20, seconds)
        else:
            first = self.consumer.poll(seconds)
            rest = itertools.islice(iter(lambda: self.consumer.poll(0), None), most - 1)
            messages = [] if first is None else [first, *rest]
        found = {}
        for one in messages:
            if one.error() is None:
                tp = TopicPartition(one.topic(), one.partition())
                record = SimpleNamespace(**tp._asdict(), offset=one.offset())
                found.setdefault(tp, []).append(record)
        return found

    def subscribe(self, topics=(), pattern=None, listener=None):
        calls = {}
        if listener is not None:
            calls = {
                "on_assign": lambda _, found: listener.on_partitions_assigned(
                    ours(found)
                ),
                "on_revoke": lambda _, found: listener.on_partitions_revoked(
                    ours(found)
                ),
            }
        topics = [*topics] if pattern is None else [f"^{pattern}"]
        self.consumer.subscribe(topics, **calls)

    def unsubscribe(self):
        self.consumer.unsubscribe()

    def assign(self, partitions):
        self.consumer.assign(theirs(partitions))

    def assignment(self):
        return ours(self.consumer.assignment())

    def pause(self, *partitions):
        self.consumer.pause(theirs(partitions))

    def resume(self, *partitions):
        self.consumer.resume(theirs(partitions))

    def quiet(self):
        return ours(self.consumer.quiet())

    def paused(self):
        message = "no call reports what is paused"
        raise AbsentError(message)

    def position(self, tp):
        (found,) = self.consumer.position(theirs([tp]))
        return found.offset if found.offset >= 0 else None

    def seek(self, tp, offset):
        self.consumer.seek(confluent_kafka.TopicPartition(*tp, offset))

    def commit(self):
        self.consumer.commit(asynchronous=False)

    def committed(self, tp):
        (found,) = self.consumer.committed(theirs([tp]), timeout=_TIMEOUT)
        return found.offset if found.offset >= 0 else None


class Adapter(CasesAdapter):
    """The adapter through which the public cases drive members on confluent-kafka."""

    def member(self, settings, control):
        configs = {
            "bootstrap.servers": settings["bootstrap"],
            # librdkafka requires a group id, even if no call needs a group
            "group.id": settings["group"] or f"none-{time.monotonic_ns()}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": settings["auto_commit"],
            "fetch.wait.max.ms": round(settings["fetch_wait"] * 1000),
            "topic.metadata.refresh.interval.ms": round(
                settings["metadata_age"] * 1000
            ),
            "max.poll.interval.ms": round(settings["max_poll_interval"] * 1000),
            "partition.assignment.strategy": settings["protocol"],
            "session.timeout.ms": round(settings["session"] * 1000),
            "heartbeat.interval.ms": round(settings["heartbeat"] * 1000),
        }
        return BlockingConsumer(Consumer(configs, control=control, log=False))


def ours(partitions):
    return {TopicPartition(one.topic, one.partition) for one in partitions}


def theirs(partitions):
    return [confluent_kafka.TopicPartition(*tp) for tp in partitions]


def login_of(story):
    """Return the members' user and password as settings of librdkafka."""
    login = story.team.broker.client_of("member")
    return {
        "security.protocol": login["security_protocol"],
        "sasl.mechanisms": login["sasl_mechanism"],
        "sasl.username": login["sasl_plain_username"],
        "sasl.password": login["sasl_plain_password"],
    }
