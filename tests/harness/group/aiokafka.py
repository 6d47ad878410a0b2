"""Members of a team on aiokafka, in an event loop on a thread. Needs the extra ``ci``."""

import asyncio
import threading
from contextlib import suppress

from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import (
    StickyPartitionAssignor,
)
from attrs import evolve
from kafka import TopicPartition

from safeconsumer.clients.aiokafka import AIOKafkaConsumer
from tests.harness.waiting import LIMIT

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class Loop:
    """
    An event loop on a thread, which nothing may be left in.

    Attributes:
        complaints: what the loop was told that nobody else heard.
        thread: where it runs.
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
        self.thread.join(LIMIT)
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        assert (left, self.complaints) == (set(), [])

    async def _left(self):
        ours = asyncio.current_task()
        await asyncio.sleep(0.01)  # a task that was cancelled ends in the next round
        return {one for one in asyncio.all_tasks() if one is not ours}

    def _complain(self, _, told):
        self.complaints.append(f"{told['message']} {told.get('exception')!r}")

    def run(self, coroutine, limit=60):
        """Return what a coroutine returns that runs in the loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(limit)

    def call(self, function, *arguments, **more):
        """Return what a function returns that is called in the loop."""

        async def called():
            return function(*arguments, **more)

        return self.run(called())


def settings_of(team, name="a", assignor="range"):
    """Return aiokafka's settings for a member of a team."""
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
    """Make a member; control settings for kafka-python's clients are left out."""
    if control is not None:
        control = evolve(control, client_configs={})
    settings = {"log": False, **settings_of(team, name, assignor), **more}
    return kind(*topics, control=control, **settings)


def owned_by(consumer):
    """Return the partitions to which a consumer has applied its holds."""
    owned = consumer._member.ledger.owned()
    return frozenset(TopicPartition(*tp) for tp in owned)


class AiokafkaMember:
    """
    A member that asks for records in a task of its own, and keeps what it gets.

    Args:
        loop: where it lives.
        team: the cluster, the group and the topic.
        name: its client id.
        assignor: its assignor.
        control: the control topics that it obeys; None: it obeys no hold and does not
            report, as plain clients.
    """

    def __init__(self, loop, team, name, assignor="range", control=None, **more):
        self.name, self.came = name, []
        self._loop = loop
        more = {"assignor": assignor, "control": control, **more}
        self.consumer = loop.call(aiokafka, team, team.topic, name=name, **more)

    def __enter__(self):
        self._loop.run(self.consumer.start())
        self._task = self._loop.call(asyncio.create_task, self._read())
        return self

    def __exit__(self, *_):
        self._loop.run(self._end())

    async def _end(self):
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self.consumer.stop()

    @property
    def assignment(self):
        """What it owns."""
        return owned_by(self.consumer)

    async def _read(self):
        async for one in self.consumer:
            self.came.append((one.partition, one.offset))
