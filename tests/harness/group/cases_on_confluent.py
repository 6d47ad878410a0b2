"""The consumer on confluent-kafka as the public cases drive it. Needs the extra ``ci``."""

import time
from types import SimpleNamespace

from confluent_kafka import TopicPartition
from kafka import TopicPartition as Ours

from safeconsumer import ALL, Control
from safeconsumer.clients.confluent import Consumer
from safeconsumer.testing.cases import adapter
from safeconsumer.testing.cases.outcomes import ONE_CONSUMER, AbsentError

_TIMEOUT = 10.0


class KafkaPythons:
    """The consumer with kafka-python's methods; what the cases pause it holds."""

    def __init__(self, settings, control):
        self._consumer = Consumer(settings, control=control, log=False)

    def close(self):
        self._consumer.close()

    def poll(self, timeout_ms, max_records):
        """Wait for a record, and take what is there besides; errors are passed over."""
        found = {}
        one = self._consumer.poll(timeout_ms / 1000)
        while one is not None:
            if one.error() is None:
                tp = Ours(one.topic(), one.partition())
                record = SimpleNamespace(
                    topic=tp.topic, partition=tp.partition, offset=one.offset()
                )
                found.setdefault(tp, []).append(record)
            if sum(map(len, found.values())) == max_records:
                break
            one = self._consumer.poll(0)
        return found

    def subscribe(self, topics=(), pattern=None, listener=None):
        def assigned(_, partitions):
            listener.on_partitions_assigned(_ours(partitions))

        def revoked(_, partitions):
            listener.on_partitions_revoked(_ours(partitions))

        topics = [*topics] if pattern is None else [f"^{pattern}"]
        self._consumer.subscribe(topics, on_assign=assigned, on_revoke=revoked)

    def unsubscribe(self):
        self._consumer.unsubscribe()

    def assign(self, partitions):
        self._consumer.assign(_theirs(partitions))

    def assignment(self):
        return _ours(self._consumer.assignment())

    def pause(self, *targets, owner="app"):
        self._consumer.hold(*targets, owner=owner)

    def resume(self, *targets, owner="app"):
        self._consumer.lift(*targets, owner=owner)

    def pause_all(self):
        self._consumer.hold(ALL)

    def resume_all(self):
        self._consumer.lift(ALL)

    def paused(self):
        message = "no call tells what is paused"
        raise AbsentError(message)

    def position(self, tp):
        (found,) = self._consumer.position(_theirs([tp]))
        return found.offset if found.offset >= 0 else None

    def seek(self, tp, offset):
        self._consumer.seek(TopicPartition(*tp, offset))

    def commit(self):
        self._consumer.commit(asynchronous=False)

    def committed(self, tp):
        (found,) = self._consumer.committed(_theirs([tp]), timeout=_TIMEOUT)
        return found.offset if found.offset >= 0 else None


class Adapter(adapter.Adapter):
    """
    Drives it, with the control topics of a prefix.

    Args:
        prefix: as ``Control.prefixed`` takes it.
    """

    def __init__(self, prefix):
        self._control = Control.prefixed(prefix)

    def open(self, settings):
        if settings["carries"]:
            raise AbsentError(ONE_CONSUMER)
        self._listener = adapter._Listener(self, settings)
        group = settings["group"]  # librdkafka wants one, also where it is not used
        self.consumer = KafkaPythons(
            {
                "bootstrap.servers": settings["bootstrap"],
                "group.id": group or f"none-{time.monotonic_ns()}",
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
            },
            self._control if group else None,
        )

    def poll_limited(self, timeout, limit):  # noqa: ARG002 - the cases' signature
        message = "a poll in C has no places where a signal handler may raise"
        raise AbsentError(message)


def _ours(partitions):
    return {Ours(one.topic, one.partition) for one in partitions}


def _theirs(partitions):
    return [TopicPartition(*tp) for tp in partitions]
