"""Workers and pumps in virtual time: what a test starts, and what its handlers do."""

import asyncio
import threading
from collections.abc import Iterable
from typing import Any

import pytest
from attrs import define
from greenlet import GreenletExit
from kafka import TopicPartition

from safeconsumer import Pump, SafeConsumer, Worker
from safeconsumer.testing._batches import NewRecord
from tests.sim.lab import GROUP, Lab

UNKNOWN_MEMBER = 25  # the answer to a heartbeat by which a member hears that it is none
UNAVAILABLE = 15  # the coordinator is not available

in_both = pytest.mark.parametrize("executor", ["thread", "asyncio"])
# Every executor and every order by day, every pair of them at night.
in_each_order = pytest.mark.parametrize(
    ("executor", "order"),
    [
        ("thread", "partition"),
        ("thread", "key"),
        ("asyncio", "unordered"),
        pytest.param("thread", "unordered", marks=pytest.mark.nightly),
        pytest.param("asyncio", "partition", marks=pytest.mark.nightly),
        pytest.param("asyncio", "key", marks=pytest.mark.nightly),
    ],
)


def put(lab: Lab, tp: TopicPartition, *values: str, keys: Iterable[str] = ()) -> None:
    """Append records with these values; keys are taken in turn, from the first on."""
    names = [*keys]
    records = [
        NewRecord(
            value=value.encode(),
            key=names[number % len(names)].encode() if names else None,
        )
        for number, value in enumerate(values)
    ]
    lab.cluster.append(tp.topic, tp.partition, records)


def filled(
    lab: Lab, partitions: int, *values: str, keys: Iterable[str] = ()
) -> list[TopicPartition]:
    """Make the topic, and append records with these values to each of its partitions."""
    made = lab.topic("t", partitions)
    for tp in made:
        put(lab, tp, *values, keys=keys)
    return made


def committed(lab: Lab, topic: str = "t") -> list[int | None]:
    return [lab.committed(tp) for tp in lab.partitions(topic)]


def expel(lab: Lab) -> None:
    """Remove the group's members, as operators can; each hears of it by its heartbeat."""
    group = lab.cluster.groups.find(GROUP)
    for member in group.members:
        group.leave(member)


def consumer(lab: Lab, *topics: str, **settings: Any) -> SafeConsumer:
    return SafeConsumer(*topics, **lab.settings(group_id=GROUP, **settings))


@define
class Call:
    """One call of a handler; ``ended`` is None while it runs."""

    topic: str
    partition: int
    offset: int
    attempt: int
    key: bytes | None
    value: bytes
    began: float
    ended: float | None = None


class Handler:
    """
    Notes its calls, and does with each record what a table says of its value.

    Seconds are slept, errors are raised, functions are called with record and context;
    what they return is again one of these. Other values are done at once.
    """

    def __init__(self, lab: Lab, **does: Any) -> None:
        self._lab = lab
        self.does = does
        self.calls: list[Call] = []

    def on(self, executor: str) -> Any:
        return self.wait if executor == "asyncio" else self

    def __call__(self, record: Any, context: Any) -> None:
        call = self._begin(record, context)
        try:
            self._lab.sleep(self._asked(record, context))
        finally:
            call.ended = self._lab.now

    async def wait(self, record: Any, context: Any) -> None:
        call = self._begin(record, context)
        try:
            await asyncio.sleep(self._asked(record, context))
        finally:
            call.ended = self._lab.now

    def _begin(self, record: Any, context: Any) -> Call:
        place = (record.topic, record.partition, record.offset)
        content = (context.attempt, record.key, record.value)
        self.calls.append(Call(*place, *content, began=self._lab.now))
        return self.calls[-1]

    def _asked(self, record: Any, context: Any) -> float:
        what = self.does.get((record.value or b"").decode(), 0.0)
        if callable(what) and not isinstance(what, type):
            what = what(record, context)
        if isinstance(what, BaseException | type):
            raise what
        return what or 0.0

    def offsets(self, partition: int = 0, topic: str = "t") -> list[int]:
        """Return the offsets of the calls for a partition, in the order they began."""
        place = (topic, partition)
        return [c.offset for c in self.calls if (c.topic, c.partition) == place]

    def times(self, value: str) -> list[float]:
        """Return when the calls for a value began, in tenths of a second."""
        return [round(c.began, 1) for c in self.calls if c.value == value.encode()]


class Working:
    """
    A worker in a process of its own.

    Attributes:
        worker: it.
        consumer: its consumer; a test may call what any thread may call.
        process: what is frozen, killed or cut off.
        events: all that it told.
        report: what ``run`` returned.
        error: what ``run`` raised.
    """

    def __init__(
        self,
        lab: Lab,
        handle: Any,
        *topics: str,
        name: str = "w",
        given: SafeConsumer | None = None,
        settings: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.lab = lab
        self.consumer: Any = given
        self.worker: Any = None
        self.events: list[Any] = []
        self.report: Any = None
        self.error: BaseException | None = None
        options.setdefault("on_event", self.events.append)
        more = {"client_id": name, **(settings or {})}
        self._make = lambda: given or consumer(lab, *(topics or ("t",)), **more)
        if isinstance(handle, Handler):
            handle = handle.on(options.get("executor", "thread"))
        self._options = {"handle": handle, **options}
        self.process, self._thread = lab.start(name, self._live)
        lab.until(lambda: self.worker is not None, what=f"{name} is there")

    def _live(self) -> None:
        self.consumer = self._make()
        self.worker = Worker(self.consumer, **self._options)
        try:
            self.report = self.worker.run()
        except GreenletExit:
            raise
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.error = error

    def done(self, count: int, seconds: float = 100.0) -> None:
        """Wait until so many records are complete."""

        def is_done() -> bool:
            assert self.worker.stats().done >= count or self._thread.is_alive(), (
                self.error
            )
            return bool(self.worker.stats().done >= count)

        self.lab.until(is_done, seconds, what=f"{count} records are done")

    def owns(self, count: int) -> None:
        """Wait until it is assigned so many partitions."""
        what = f"it owns {count}"
        self.lab.until(lambda: len(self.consumer.assignment()) == count, what=what)

    def told(self, kind: type) -> list[Any]:
        return [one for one in self.events if type(one) is kind]

    def ends(self) -> BaseException | None:
        self._thread.join(300.0)
        assert not self._thread.is_alive(), "it has not ended within 300 s"
        return self.error

    def stop(self, **how: Any) -> Any:
        """Stop it, and return its report, or raise its error."""
        self.worker.stop(**how)
        if self.ends() is not None:
            raise self.error  # type: ignore[misc]  # it is not None
        return self.report


def taken(lab: Lab, pump: Pump, count: int) -> list[Any]:
    found: list[Any] = []

    def are_out() -> bool:
        found.extend(pump.turn())
        return sum(map(len, found)) >= count

    lab.until(are_out, what=f"{count} records are handed out")
    return found


def offsets(*batches: Any) -> list[int]:
    """Return where the records of batches stand."""
    return [record.offset for one in batches for record in one.records]


def in_thread(call: Any) -> threading.Thread:
    thread = threading.Thread(target=call)
    thread.start()
    return thread
