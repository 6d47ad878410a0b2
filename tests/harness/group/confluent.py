"""Members of a team on confluent-kafka, which poll on threads. Needs the extra ``ci``."""

import threading

from attrs import evolve
from kafka import TopicPartition

from safeconsumer.clients.confluent import Consumer
from tests.harness.waiting import LIMIT

NEWER = "consumer"  # the protocol in which the broker assigns (KIP-848)


def settings_of(team, name="a", protocol="range"):
    """Return confluent-kafka's settings for a member of a team."""
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
    """Make a member; control settings for kafka-python's clients are left out."""
    own, other = {}, {}
    for key, value in more.items():
        (own if key in {"hooks", "log"} else other)[key.replace("_", ".")] = value
    if control is not None:
        control = evolve(control, client_configs={})
    settings = {**settings_of(team, name, protocol), **other}
    return kind(settings, control=control, **{"log": False, **own})


class ConfluentMember:
    """
    A member that polls on a thread of its own, and keeps what it gets.

    Args:
        team: the cluster, the group and the topic.
        name: its client id.
        protocol: its assignor, or ``consumer``.
        control: the control topics that it obeys; None: it obeys no hold and does not
            report, as plain clients.
    """

    def __init__(self, team, name, protocol=NEWER, control=None, **more):
        self.name, self.came = name, []
        self.consumer = confluent(team, name, protocol, control=control, **more)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self.consumer.subscribe([team.topic])

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join(LIMIT)
        assert not self._thread.is_alive(), "its poll hangs"
        self.consumer.close()

    @property
    def assignment(self):
        """What it owns; librdkafka itself is asked on its own thread only."""
        owned = self.consumer._member.ledger.owned()
        return frozenset(TopicPartition(*tp) for tp in owned)

    def _poll(self):
        while not self._over.is_set():
            one = self.consumer.poll(0.05)
            if one is not None and one.error() is None:
                self.came.append((one.partition(), one.offset()))


def login_of(story):
    """Return the login of members by librdkafka's names."""
    login = story.team.broker.client_of("member")
    return {
        "security.protocol": login["security_protocol"],
        "sasl.mechanisms": login["sasl_mechanism"],
        "sasl.username": login["sasl_plain_username"],
        "sasl.password": login["sasl_plain_password"],
    }
