"""
A deserializer that blocks for one record, as one that asks a schema registry which is away.

Its lock is one of the process, and is waited for without a limit. So (1) a Worker of another
topic, given the same function, stands still; (2) with executor="asyncio" it is the loop that
stands, under ``serve()`` the application's own: no timeout, cancel or probe in it runs.
"""

import asyncio
import threading
import time
import warnings
from typing import Any

import pytest
from kafka.serializer.wrapper import DeserializeWrapper

from safeconsumer.worker.deserializing import Readers
from tests.sim.lab import Lab
from tests.sim.playing import simulated
from tests.sim.worker.working import Working, put

pytestmark = pytest.mark.filterwarnings("ignore:.*deserializer:DeprecationWarning")


@simulated(seeds=1)
def test_a_worker_goes_on_while_another_ones_deserializer_blocks(lab: Lab) -> None:
    for topic in ("t", "u"):
        (tp,) = lab.topic(topic, 1)
        put(lab, tp, *(["slow"] if topic == "t" else ["v"] * 20))

    def decode(data: bytes) -> str:
        if data == b"slow":
            lab.sleep(100.0)
        return data.decode()

    settings = {"value_deserializer": decode}
    first = Working(lab, lambda *_: None, settings=settings)
    lab.sleep(5.0)
    second = Working(lab, lambda *_: None, "u", name="b", settings=settings)
    lab.sleep(20.0)
    done = second.worker.stats().done
    lab.sleep(100.0)
    first.stop()
    second.stop()
    assert done == 20


class Record:
    topic, key, value, headers = "t", None, b"v", ()

    def _replace(self, **_: object) -> "Record":
        return self


def test_a_loop_goes_on_while_another_worker_is_in_the_same_deserializer() -> None:
    warnings.simplefilter("ignore")
    entered, leave, first = threading.Event(), threading.Event(), [True]

    def decode(data: bytes) -> bytes:
        if first and first.pop():
            entered.set()
            leave.wait(3)
        return data

    async def handle(_record: Any, _context: Any) -> None: ...

    of_threads, of_loop = (Readers(None, DeserializeWrapper(decode)) for _ in range(2))
    other = threading.Thread(target=of_threads.read, args=(Record(),))
    other.start()
    entered.wait(5)
    called: Any = of_loop.before(handle, is_batch=False)

    async def application() -> float:
        task = asyncio.create_task(called(Record(), None))
        began = time.monotonic()
        await asyncio.sleep(0.1)  # whatever else the application's loop does
        took = time.monotonic() - began
        leave.set()
        await task
        return took

    took = asyncio.run(application())
    other.join()
    assert took < 1.0
