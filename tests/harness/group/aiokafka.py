"""Makes members that use aiokafka in an event loop on a thread; needs the extra ``ci``."""

import asyncio
import itertools
import threading
from contextlib import suppress

import aiokafka as upstream
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import (
    StickyPartitionAssignor,
)
from attrs import evolve
from kafka import TopicPartition

from safeconsumer import Control
from safeconsumer.clients.aiokafka import AIOKafkaConsumer
from tests.harness.group.blocking import Blocking, CasesAdapter, Running
from tests.harness.waiting import end_of, result_of

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}
_HOLD_MORE = 3.0  # extra seconds for a call during a rebalance


class Loop:
    """
    Runs an event loop on a thread; on exit no task and no unhandled error may remain.

    Attributes:
        complaints: the errors that no task of the loop has handled.
        thread: the thread of the loop.
    """

    def __init__(self):
        self.complaints = []
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(self._complain)
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        left = self.run(self._left())
        self.loop.call_soon_threadsafe(self.loop.stop)
        end_of(self.thread)
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        assert (left, self.complaints) == (set(), [])

    async def _left(self):
        ours = asyncio.current_task()
        await asyncio.sleep(0.01)  # a cancelled task finishes in the next iteration
        return {one for one in asyncio.all_tasks() if one is not ours}

    def _complain(self, _, context):
        self.complaints.append(f"{context['message']} {context.get('exception')!r}")

    def run(self, coroutine, limit=60):
        """Run a coroutine in the loop; return its result."""
        called = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        return result_of(called, limit)

    def call(self, function, *arguments, **more):
        """Call a function in the loop; return its result."""
        if threading.current_thread() is self.thread:  # a listener calls this method
            return function(*arguments, **more)

        async def called():
            return function(*arguments, **more)

        return self.run(called())


def settings_of(team, name="a", assignor="range"):
    """Return the settings of aiokafka for a member of a team."""
    return {
        "bootstrap_servers": team.broker.client_config["bootstrap_servers"],
        "group_id": team.group,
        "client_id": name,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "partition_assignment_strategy": [ASSIGNORS[assignor]],
        "session_timeout_ms": 10_000,
        "heartbeat_interval_ms": 300,
        "fetch_max_wait_ms": 50,
        "metadata_max_age_ms": 1000,
    }


def aiokafka(
    team,
    *topics,
    name="a",
    assignor="range",
    control=None,
    kind=AIOKafkaConsumer,
    **more,
):
    """Make a member; ignore the control settings that apply to kafka-python's clients."""
    if isinstance(control, Control):
        control = evolve(control, client_configs={})
    settings = {"log": False, **settings_of(team, name, assignor), **more}
    return kind(*topics, control=control, **settings)


def AiokafkaMember(loop, team, name, assignor="range", control=None, **more):  # noqa: N802 - it makes one
    """
    Make a member that is polled on a thread of its own.

    Args:
        loop: the member's event loop.
        team: the cluster, the group and the topic of the member.
        name: the member's client id.
        assignor: the member's assignor.
        control: the control topics that the member obeys; with None the member ignores
            holds and does not report, like a plain client.
        more: further settings of the client.
    """
    more = {"name": name, "assignor": assignor, "control": control, **more}
    consumer = loop.call(aiokafka, team, **more)
    return Running(BlockingConsumer(loop, consumer), team.topic)


class BlockingConsumer(Blocking):
    """
    A consumer with kafka-python's methods that runs aiokafka's coroutines in a loop.

    The first call of ``subscribe`` or ``assign`` starts the consumer.
    """

    def __init__(self, loop, consumer):
        self.loop, self.consumer = loop, consumer
        self._is_started = False
        self._turns = itertools.count()

    def start(self):
        if not self._is_started:
            self._is_started = True
            self.run("start")

    def close(self):
        self.run("stop")

    def run(self, name, *arguments, **more):
        """Run one of the consumer's coroutines in the loop."""
        return self.loop.run(getattr(self.consumer, name)(*arguments, **more))

    def call(self, name, *arguments, **more):
        """Call one of the consumer's functions in the loop."""
        return self.loop.call(getattr(self.consumer, name), *arguments, **more)

    def poll(self, timeout_ms, max_records=None):
        """Return the records of ``getmany`` and ``getone``, called alternately."""
        return self.loop.run(self._polled(timeout_ms, max_records))

    async def _polled(self, timeout_ms, max_records):
        seconds = timeout_ms / 1000
        with suppress(TimeoutError):
            if next(self._turns) % 2 and max_records is None:
                one = await asyncio.wait_for(self.consumer.getone(), seconds)
                return {TopicPartition(one.topic, one.partition): [one]}
            call = self.consumer.getmany(timeout_ms=timeout_ms, max_records=max_records)
            return await asyncio.wait_for(call, seconds + _HOLD_MORE)
        return {}

    def subscribe(self, topics=(), pattern=None, listener=None):
        if listener is not None:
            listener = _Listener(listener)
        self.call("subscribe", topics, pattern=pattern, listener=listener)
        self.start()

    def unsubscribe(self):
        self.call("unsubscribe")

    def assign(self, partitions):
        self.call("assign", theirs(partitions))
        self.start()

    def assignment(self):
        return ours(self.call("assignment"))

    def pause(self, *partitions):
        self.call("pause", *theirs(partitions))

    def resume(self, *partitions):
        self.call("resume", *theirs(partitions))

    def quiet(self):
        return ours(self.consumer.quiet())

    def paused(self):
        return ours(self.consumer.paused())

    def position(self, tp):
        return self.run("position", *theirs([tp]))

    def seek(self, tp, offset):
        self.call("seek", *theirs([tp]), offset)

    def commit(self):
        self.run("commit")

    def committed(self, tp):
        return self.run("committed", *theirs([tp]))


class Adapter(CasesAdapter):
    """The adapter through which the public cases drive members on aiokafka."""

    def member(self, settings, control):
        loop = Loop().__enter__()
        consumer = loop.call(
            AIOKafkaConsumer,
            control=control,
            log=False,
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
            partition_assignment_strategy=[ASSIGNORS[settings["protocol"]]],
        )
        member = BlockingConsumer(loop, consumer)
        member.start()
        return member


class _Listener(upstream.ConsumerRebalanceListener):
    def __init__(self, theirs):
        self._theirs = theirs

    def on_partitions_revoked(self, revoked):
        self._theirs.on_partitions_revoked(ours(revoked))

    def on_partitions_assigned(self, assigned):
        self._theirs.on_partitions_assigned(ours(assigned))


def ours(partitions):
    return {TopicPartition(one.topic, one.partition) for one in partitions}


def theirs(partitions):
    return [upstream.TopicPartition(*tp) for tp in partitions]
