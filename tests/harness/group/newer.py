"""
Members of the protocol in which the broker assigns (KIP-848), on confluent-kafka.

Needs the extra ``ci``, and Apache Kafka.
"""

import struct
import threading

import confluent_kafka
from kafka import TopicPartition

from safeconsumer.holds.ledger import PauseLedger
from tests.harness.waiting import LIMIT

# How librdkafka writes what it calls a group's metadata: its mark, then the epoch.
_MARK = b"CGMDv2:"
_EPOCH = struct.Struct("<i")


class NewerMember:
    """
    Polls on a thread of its own, and throws away what it gets.

    Args:
        team: the cluster, the group and the topic.
        name: its client id.
        control: the control topics that it obeys; None: it obeys no hold and does not
            report, as plain clients.
    """

    def __init__(self, team, name, control=None):
        self.name = name
        self.ledger = PauseLedger(client_id=name, group_id=team.group)
        self._membership = ("", -1)
        self._over = threading.Event()
        self._paused = frozenset()
        self._after_joins = []
        servers = ",".join(team.broker.client_config["bootstrap_servers"])
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": team.group,
                "group.protocol": "consumer",
                "client.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        configs = {
            **team.broker.client_config,
            "group_id": team.group,
            "client_id": name,
        }
        self._control = control and control.attach(self, configs)
        self._consumer.subscribe(
            [team.topic], on_assign=self._assigned, on_revoke=self._revoked
        )
        self._thread = threading.Thread(target=self._poll, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join(LIMIT)
        assert not self._thread.is_alive(), "its poll hangs"
        if self._control is not None:
            self._control.close()
        self._consumer.close()

    @property
    def assignment(self):
        return frozenset(self.ledger.owned())

    # ------------------------------------------------------------ its control asks

    def membership(self):
        return self._membership

    def busy(self):
        return ()

    def busy_elsewhere(self):
        return ()

    def recreated(self):
        return ()

    def call_after_joins(self, call):
        self._after_joins.append(call)

    # ------------------------------------------------------------ on its thread

    def _poll(self):
        while not self._over.is_set():
            self._consumer.poll(0.05)
            metadata = self._consumer.consumer_group_metadata()
            if metadata.startswith(_MARK):
                (epoch,) = _EPOCH.unpack_from(metadata, len(_MARK))
                self._membership = self._consumer.memberid(), epoch
            self._pause()

    def _assigned(self, consumer, partitions):
        self._own({**self.ledger.owned(), **dict.fromkeys(map(_tp, partitions), self)})
        consumer.incremental_assign(partitions)
        self._paused = frozenset()
        self._pause()

    def _revoked(self, consumer, partitions):
        gone = set(map(_tp, partitions))
        owned = self.ledger.owned().items()
        consumer.incremental_unassign(partitions)
        self._own({tp: one for tp, one in owned if tp not in gone})

    def _own(self, owned):
        self.ledger.assign(owned)
        for call in self._after_joins:
            call()

    def _pause(self):
        quiet = frozenset(self.ledger.view().quiet)
        if quiet - self._paused:
            self._consumer.pause(_theirs(quiet - self._paused))
        if loud := (self._paused - quiet) & self.assignment:
            self._consumer.resume(_theirs(loud))
        self._paused = quiet


def _tp(one):
    return TopicPartition(one.topic, one.partition)


def _theirs(partitions):
    return [confluent_kafka.TopicPartition(*tp) for tp in partitions]
