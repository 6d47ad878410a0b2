"""Runs an embedded broker's parts: the mock cluster, its fronts, the loop's thread."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from safeconsumer.testing import _apis, _ports
from safeconsumer.testing._front import Front, Shared
from safeconsumer.testing._librdkafka import MockCluster

_T = TypeVar("_T")
_HOST = "127.0.0.1"
_COMMAND_TIMEOUT = 10.0


class Cluster:
    """A running cluster; it runs from its construction until :meth:`stop`."""

    def __init__(self, brokers: int) -> None:
        self.mock = MockCluster(brokers)
        self._runner = _LoopThread()
        self.shared = Shared(self._runner.loop)
        self.fronts: dict[int, Front] = {}
        self.addresses: list[tuple[str, int]] = []
        try:
            self._open()
        except BaseException:
            self.stop()
            raise

    def _open(self) -> None:
        for api, newest in _apis.NEWEST_VERSIONS.items():
            self.mock.limit_api(_apis.API_KEYS[api], newest)
        for broker_id, behind in enumerate(self.mock.addresses(), start=1):
            address = (_HOST, _ports.free_port())
            front = Front(self.shared, broker_id, address, behind)
            self.run(front.up())
            self.fronts[broker_id] = front
            self.addresses.append(address)
            self.mock.advertise(broker_id, *address)

    def stop(self) -> None:
        """Cut all connections and free everything."""
        for front in self.fronts.values():
            self.run(front.down())
        self._runner.stop()
        self.mock.close()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Do something in the loop's thread and return its result."""
        return self._runner.run(work)

    def call(self, function: Callable[[], _T]) -> _T:
        """Call a function in the loop's thread, where everything shared belongs."""

        async def call() -> _T:
            return function()

        return self.run(call())


class _LoopThread:
    """One asyncio loop in one daemon thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self.loop.run_forever, name="embedded-kafka", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        return future.result(_COMMAND_TIMEOUT)

    def stop(self) -> None:
        self.run(_let_connections_close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_COMMAND_TIMEOUT)
        self.loop.close()


async def _let_connections_close() -> None:
    """Give aborted transports the two turns they need to close their sockets."""
    current = asyncio.current_task()
    tasks = [task for task in asyncio.all_tasks() if task is not current]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for _ in range(3):
        await asyncio.sleep(0)
