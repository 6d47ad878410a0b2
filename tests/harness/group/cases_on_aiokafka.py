"""The consumer on aiokafka as the public cases drive it: one call at a time, blocking."""

import asyncio
import threading
from contextlib import suppress

import aiokafka
from kafka import TopicPartition

from safeconsumer import ALL, Control
from safeconsumer.clients.aiokafka import AIOKafkaConsumer
from safeconsumer.testing.cases import adapter
from safeconsumer.testing.cases.outcomes import ONE_CONSUMER, AbsentError
from tests.harness.group.aiokafka import ASSIGNORS, Loop

_HOLD_MORE = 3.0  # seconds that a call may take in a rebalance, as others'


class Blocking:
    """
    The consumer with kafka-python's methods, whose loop runs all the time.

    What the cases pause it holds.
    """

    def __init__(self, *, control, assignor, **configs):
        self._loop = Loop().__enter__()
        configs["partition_assignment_strategy"] = [ASSIGNORS[assignor]]
        if configs["group_id"] is None:
            control = None
        self._consumer = self._loop.call(
            AIOKafkaConsumer, control=control, log=False, **configs
        )
        self._loop.run(self._consumer.start())

    def close(self):
        self._loop.run(self._consumer.stop())

    def poll(self, timeout_ms, max_records):
        async def asked():
            call = self._consumer.getmany(
                timeout_ms=timeout_ms, max_records=max_records
            )
            with suppress(TimeoutError):
                return await asyncio.wait_for(call, timeout_ms / 1000 + _HOLD_MORE)
            return {}

        return self._loop.run(asked())

    def subscribe(self, topics=(), pattern=None, listener=None):
        more = {"pattern": pattern, "listener": _Listener(listener)}
        self._call("subscribe", topics, **more)

    def unsubscribe(self):
        self._call("unsubscribe")

    def assign(self, partitions):
        self._call("assign", _theirs(partitions))

    def assignment(self):
        return set(map(_ours, self._call("assignment")))

    def pause(self, *targets, owner="app"):
        self._consumer.hold(*targets, owner=owner)

    def resume(self, *targets, owner="app"):
        self._consumer.lift(*targets, owner=owner)

    def pause_all(self):
        self._consumer.hold(ALL)

    def resume_all(self):
        self._consumer.lift(ALL)

    def paused(self):
        return set(map(_ours, self._consumer.paused()))

    def position(self, tp):
        return self._loop.run(self._consumer.position(*_theirs([tp])))

    def seek(self, tp, offset):
        self._call("seek", *_theirs([tp]), offset)

    def commit(self):
        self._loop.run(self._consumer.commit())

    def committed(self, tp):
        return self._loop.run(self._consumer.committed(*_theirs([tp])))

    def _call(self, name, *arguments, **more):
        call = getattr(self._consumer, name)
        if threading.current_thread() is self._loop.thread:  # by a listener
            return call(*arguments, **more)
        return self._loop.call(call, *arguments, **more)


class Adapter(adapter.Adapter):
    """
    Drives it, with the holds topics of a prefix, if one is given.

    Args:
        prefix: as ``Control.prefixed`` takes it; empty for no control.
    """

    def __init__(self, prefix):
        self._control = Control.prefixed(prefix) if prefix else None

    def open(self, settings):
        if settings["carries"]:
            raise AbsentError(ONE_CONSUMER)
        self._listener = adapter._Listener(self, settings)
        self.consumer = Blocking(
            control=self._control,
            assignor=settings["protocol"],
            bootstrap_servers=settings["bootstrap"],
            group_id=settings["group"],
            auto_offset_reset="earliest",
            enable_auto_commit=settings["auto_commit"],
            fetch_max_wait_ms=round(settings["fetch_wait"] * 1000),
            metadata_max_age_ms=round(settings["metadata_age"] * 1000),
            retry_backoff_ms=50,
            session_timeout_ms=round(settings["session"] * 1000),
            heartbeat_interval_ms=round(settings["heartbeat"] * 1000),
            max_poll_interval_ms=round(settings["max_poll_interval"] * 1000),
        )

    def poll_limited(self, timeout, limit):  # noqa: ARG002 - the cases' signature
        message = "a coroutine is cancelled, and never interrupted"
        raise AbsentError(message)


class _Listener(aiokafka.ConsumerRebalanceListener):
    def __init__(self, theirs):
        self._theirs = theirs

    def on_partitions_revoked(self, revoked):
        self._theirs.on_partitions_revoked(set(map(_ours, revoked)))

    def on_partitions_assigned(self, assigned):
        self._theirs.on_partitions_assigned(set(map(_ours, assigned)))


def _ours(tp):
    return TopicPartition(tp.topic, tp.partition)


def _theirs(partitions):
    return [aiokafka.TopicPartition(one.topic, one.partition) for one in partitions]
