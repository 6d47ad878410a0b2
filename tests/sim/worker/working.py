"""Workers and pumps in virtual time, and handlers that follow a table."""

import asyncio
import inspect
import threading
from contextlib import closing

import pytest
from attrs import define
from greenlet import GreenletExit
from kafka import KafkaProducer

from safeconsumer import BatchFailure, Commit, Retry, SafeConsumer, Worker
from safeconsumer.testing._batches import NewRecord, of_transaction_end
from tests.sim.lab import GROUP
from tests.sim.reading import COOPERATIVE, EAGER

UNKNOWN_MEMBER = 25  # the error for a heartbeat of a former member
UNKNOWN_TOPIC = 3
LOADING = 14  # the coordinator loads its offsets, as it does after it has moved
UNAVAILABLE = 15  # the coordinator is not available
NOT_LEADER_OR_FOLLOWER = 6
SOON = Retry(attempts=2, first=0.01, jitter=False)
OFTEN, RARELY = Commit(every=0.2), Commit(every=60.0)

ASSIGNORS = {"eager": EAGER, "cooperative": COOPERATIVE}
in_both_ways = pytest.mark.parametrize("protocol", list(ASSIGNORS))
in_both = pytest.mark.parametrize("executor", ["thread", "asyncio"])
# Every run has each executor and each order; the nightly run has every pair of the two.
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


def put(lab, tp, *values, keys=()):
    """Append records with these values; the keys repeat in turn, from the first key on."""
    names = [*keys]
    records = [
        NewRecord(
            value=value.encode(),
            key=names[number % len(names)].encode() if names else None,
        )
        for number, value in enumerate(values)
    ]
    lab.cluster.append(tp.topic, tp.partition, records)


def put_marker(lab, tp):
    """Append the end of a transaction, which readers pass over."""
    marker = of_transaction_end(9, 0, lab.cluster.now_ms(), is_committed=True)
    lab.cluster.log(*tp).append(marker)
    lab.cluster.fetches.answer_waiting()


def filled(lab, partitions, *values, keys=()):
    """Create the topic, and append records with these values to each of its partitions."""
    made = lab.topic("t", partitions)
    for tp in made:
        put(lab, tp, *values, keys=keys)
    return made


def committed(lab, topic="t"):
    return [lab.committed(tp) for tp in lab.partitions(topic)]


def expel(lab):
    """Remove the group's members, as operators can; each notices at its next heartbeat."""
    group = lab.cluster.groups.find(GROUP)
    for member in group.members:
        group.leave(member)


def quick(protocol="eager", **more):
    """Return settings of a consumer that notices rebalances soon and polls ten records."""
    strategy = {"partition_assignment_strategy": [ASSIGNORS[protocol]]}
    return {**strategy, "heartbeat_interval_ms": 200, "max_poll_records": 10, **more}


def consumer(lab, *topics, **settings):
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
    A handler that records its calls, and looks up its actions by the record's value.

    The table has a number of seconds to sleep, an error to raise, or a function of record
    and context that returns one of these. A record with another value is done immediately.
    The records of a batch follow one another, and a BatchFailure names the records that
    raised.
    """

    def __init__(self, lab, **does):
        self._lab = lab
        self.does = does
        self.calls = []

    def on(self, executor):
        return self.wait if executor == "asyncio" else self

    def __call__(self, given, context):
        with closing(self._steps(given, context)) as steps:
            for seconds in steps:
                self._lab.sleep(seconds)

    async def wait(self, given, context):
        with closing(self._steps(given, context)) as steps:
            for seconds in steps:
                await asyncio.sleep(seconds)

    def _steps(self, given, context):
        """Yield the seconds to sleep, for one record or for each record of a batch."""
        errors = {}
        is_batch = isinstance(given, list)
        for index, record in enumerate(given if is_batch else [given]):
            call = self._begin(record, context)
            try:
                yield self._asked(record, context)
            except Exception as error:
                if not is_batch:
                    raise
                errors[index] = error
            finally:
                call.ended = self._lab.now
        if errors:
            raise BatchFailure(errors)

    def _begin(self, record, context):
        place = (record.topic, record.partition, record.offset)
        content = (context.attempt, record.key, record.value)
        self.calls.append(Call(*place, *content, began=self._lab.now))
        return self.calls[-1]

    def _asked(self, record, context):
        what = self.does.get((record.value or b"").decode(), 0.0)
        if callable(what) and not isinstance(what, type):
            what = what(record, context)
        if isinstance(what, BaseException | type):
            raise what
        return what or 0.0

    def offsets(self, partition=0, topic="t"):
        """Return the offsets of the calls for a partition, in the order of their start."""
        place = (topic, partition)
        return [c.offset for c in self.calls if (c.topic, c.partition) == place]

    def times(self, value):
        """Return the start times of the calls for a value, in tenths of a second."""
        return [round(c.began, 1) for c in self.calls if c.value == value.encode()]


def fitting(handle, executor):
    """Return a handler in the form that an executor needs."""
    if isinstance(handle, Handler):
        return handle.on(executor)
    if executor == "thread" or inspect.iscoroutinefunction(handle):
        return handle

    async def wait(given, context):
        return handle(given, context)

    return wait


class Working:
    """
    A worker in its own process.

    A test with coroutines stops the worker, because asyncio warns about tasks that are left
    in a loop.

    Attributes:
        worker: the worker.
        consumer: the worker's consumer; a test may make the calls that any thread may make.
        process: the worker's simulated process, which a test may freeze, kill or cut off.
        events: all events that the worker emitted.
        report: the report that ``run`` returned.
        error: the exception that ``run`` raised.
    """

    def __init__(
        self, lab, handle, *topics, name="w", given=None, settings=None, **options
    ):
        self.lab = lab
        self.consumer = given
        self.worker = None
        self.events = []
        self.report = None
        self.error = None
        options.setdefault("on_event", self.events.append)
        more = {"client_id": name, **(settings or {})}
        self._make = lambda: given or consumer(lab, *(topics or ("t",)), **more)
        executor = options.get("executor", "thread")
        self._options = {"handle": fitting(handle, executor), **options}
        self.process, self._thread = lab.start(name, self._live)
        lab.until(lambda: self.worker is not None, what=f"{name} is there")

    def _live(self):
        self.consumer = self._make()
        self.worker = Worker(self.consumer, **self._options)
        try:
            self.report = self.worker.run()
        except GreenletExit:
            raise
        except BaseException as error:  # noqa: BLE001 - the test reads it
            self.error = error

    def done(self, count, seconds=100.0):
        """Wait until this many records are complete."""

        def is_done():
            is_enough = self.worker.stats().done >= count
            assert is_enough or self._thread.is_alive(), self.error
            return is_enough

        self.lab.until(is_done, seconds, what=f"{count} records are done")

    def owns(self, count):
        """Wait until the worker owns this many partitions."""
        what = f"it owns {count}"
        self.lab.until(lambda: len(self.consumer.assignment()) == count, what=what)

    def of_kind(self, kind):
        return [one for one in self.events if type(one) is kind]

    def ends(self):
        self._thread.join(300.0)
        assert not self._thread.is_alive(), "it has not ended within 300 s"
        return self.error

    def stop(self, **how):
        """Stop the worker, and return its report, or raise its error."""
        self.worker.stop(**how)
        if self.ends() is not None:
            raise self.error
        return self.report


def taken(lab, pump, count):
    found = []

    def are_out():
        found.extend(pump.turn())
        return sum(map(len, found)) >= count

    lab.until(are_out, what=f"{count} records are handed out")
    return found


def offsets(*batches):
    """Return the offsets of the records in batches."""
    return [record.offset for one in batches for record in one.records]


def settled(lab, *runs):
    """Wait until the workers share all partitions of the topic."""
    total = len(lab.partitions("t"))

    def condition():
        owned = [run.consumer.assignment() for run in runs]
        return all(owned) and sum(map(len, owned)) == total == len(set().union(*owned))

    lab.until(condition, what="they share the topic")


def journaled(lab, folder, handle, settings=None, **options):
    """Start a worker that has a journal and short delays for commits and retries."""
    options = {"retry": SOON, "commit": OFTEN, **options}
    return Working(
        lab, handle, settings={"journal": folder, **(settings or {})}, **options
    )


def fails(*_):
    try:
        {}["the cause"]
    except KeyError as error:
        message = "the effect"
        raise ValueError(message) from error


def producer(lab, **settings):
    lab.topic("dead")
    return KafkaProducer(**lab.connection, **settings)


def in_thread(call):
    thread = threading.Thread(target=call)
    thread.start()
    return thread


def planted_once(call, error):
    """Return a function that raises at its first call, and works afterwards."""
    left = [error]

    def once(*given, **named):
        if left:
            raise left.pop()
        return call(*given, **named)

    return once
