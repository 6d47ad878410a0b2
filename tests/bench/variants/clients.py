"""Reads a whole topic, or each new record, with one of the clients that are compared."""

import asyncio
import gc
import importlib
import os
import re
import resource
import time
from typing import Any, NamedTuple

from tests.bench.memory import peak_mb, resident_mb
from tests.bench.variants.consumers import make

_BOUND = 120.0
_CHUNK = 2_000  # records to iterate over before the clock is read again
# The wait is short, because the last fetch of a lap waits at the end of the topic and
# delays the next lap.
_LAST_WAIT_MS = 25
_PARKED = 500  # number of records to wait for after a pause
_PAUSED_FOR = 0.5  # seconds; by default a fetch waits as long at the broker
_GIVEN_UP = 10.0  # seconds; some partitions may deliver no more records
_FETCHED_AFTER = 0.8  # seconds in which the client fetches all records
_PAIRS = 200  # how many times in a row a partition is paused and resumed
# The timeout is long, because aiokafka sends no heartbeats between two steps, when its
# event loop does not run.
_SESSION_MS = 180_000
# The number of partitions that are held in each missing topic.
_STRANGERS = 100
# By default librdkafka does not fetch for a second after a partition's queue was full.
_TUNED = {"fetch.queue.backoff.ms": 1, "queued.min.messages": 1_000_000}


class Setup(NamedTuple):
    """The settings of a client and its topic; an attrs class would cost us memory."""

    client: str  # the client's name, perhaps with a variant
    config: dict[str, Any]  # the connection settings for kafka-python
    bootstrap: str  # the broker's address, for the other clients
    topic: str  # the topic that the client reads
    partitions: int  # the number of its partitions
    # Whether the client subscribes in a group of its own. Otherwise it assigns itself
    # the partitions.
    is_member: bool = False
    # The number of partitions at the end of the topic that have no records and stay
    # paused.
    quiet: int = 0
    strangers: int = 0  # the number of missing partitions that our consumer holds
    wait_ms: int = _LAST_WAIT_MS  # the longest wait of a fetch, if not a member
    deserializes: bool = False  # whether the client decodes values to strings
    has_headers: bool = False  # whether the program also reads headers
    is_committed: bool = False  # whether the client reads committed records only
    is_on_one_core: bool = False
    is_ours: bool = False  # whether aiokafka and confluent-kafka run as our members
    largest_fetch: int = 2**20  # for aiokafka: the maximum bytes per partition

    @property
    def settings(self):
        """Return the settings for clients that are written in Python."""
        more = {"value_deserializer": bytes.decode} if self.deserializes else {}
        if self.is_committed:
            more["isolation_level"] = "read_committed"
        if self.is_member:
            return more | {"group_id": self.group, "session_timeout_ms": _SESSION_MS}
        return more | {"fetch_max_wait_ms": self.wait_ms}

    @property
    def look(self):
        """Return a function that accesses the fields of each record in a batch."""
        return _look_at_headers if self.has_headers else _look

    @property
    def group(self):
        return f"{self.topic}-{self.client.replace(' ', '-')}-{time.monotonic_ns()}"

    def everything(self, kind, *more):
        """Return all partitions as objects of the client's own class."""
        return [kind(self.topic, number, *more) for number in range(self.partitions)]


def client_of(setup):
    """
    Return the client that the settings name.

    The client's attribute ``every`` lists its partitions, for ``pause`` and ``resume``.
    Each client has these methods: ``owned`` returns the number of its partitions.
    ``poll`` returns values. ``read`` reads from the start, up to a number of records or
    a time, and accesses the key, value and offset of each record. ``take`` does the same
    from the current position, with one poll or by iterating. ``rest`` stops fetching.
    ``within`` makes a call in the way in which an application of the client would.
    ``close`` closes the client.
    """
    if setup.client == "aiokafka":
        return _Aiokafka(setup)
    if setup.client.startswith("confluent"):
        return _Confluent(setup)
    return _KafkaPython(setup)


class _Blocking:
    """A client whose calls block."""

    def within(self, call, *args):
        return call(*args)

    def wait(self, seconds):
        time.sleep(seconds)

    def rest(self):
        """Do nothing, because a client that does not poll does not fetch."""

    def read(self, records, max_records, until):
        self.rewind()
        got = 0
        while got < records and (not got or time.monotonic() < until):
            got += self.take(min(_CHUNK, records - got), max_records)
        return got


class _KafkaPython(_Blocking):
    def __init__(self, setup):
        base, _, decoder = setup.client.partition("-")
        more = {"decoder": decoder} if base == "safe" else {}
        if not setup.is_member:
            more["consumer_timeout_ms"] = _BOUND * 1000
        self._consumer = make(base, setup.config, **setup.settings, **more)
        self._look = setup.look
        every = setup.everything(importlib.import_module("kafka").TopicPartition)
        full = setup.partitions - setup.quiet
        self.every, self._full, self._quiet = every, every[:full], every[full:]
        if not setup.is_member:
            self._consumer.assign(every)
        elif setup.strangers:  # a pattern may match missing topics
            self._consumer.subscribe(pattern=rf"({re.escape(setup.topic)}$|stranger-)")
        else:
            self._consumer.subscribe([setup.topic])

    def owned(self):
        return len(self._consumer.assignment())

    def pause(self, partitions):
        self._consumer.pause(*partitions)

    def resume(self, partitions):
        self._consumer.resume(*partitions)

    def hold(self, strangers):
        """Hold partitions; return the time and memory for the holds on missing partitions."""
        for tp in self._quiet:
            self._consumer.pause(tp)
        if not strangers:
            return {}
        kind, each = type(self.every[0]), _STRANGERS
        targets = [kind(f"stranger-{n // each}", n % each) for n in range(strangers)]
        gc.collect()
        before, start = resident_mb(), time.perf_counter()
        for target in targets:
            self._consumer.pause(target)
        seconds = time.perf_counter() - start
        gc.collect()
        _expect(len(self._consumer.holds()), strangers)
        return {"placed": seconds, "mb": resident_mb() - before}

    def poll(self, seconds):
        batches = self._consumer.poll(int(seconds * 1000)).values()
        return [one.value for batch in batches for one in batch]

    def rewind(self):
        for tp in self._full:
            self._consumer.seek(tp, 0)

    def take(self, most, max_records):
        if max_records is None:
            got = 0
            for one in self._consumer:
                _ = one.key, one.value, one.offset
                got += 1
                if got == most:
                    break
            return got
        came = self._consumer.poll(1000, max_records=max_records)
        return sum(map(self._look, came.values()))

    def close(self):
        self._consumer.close()


class _Aiokafka:
    def __init__(self, setup):
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._start(setup))

    async def _start(self, setup):
        aiokafka = importlib.import_module("aiokafka")
        make, more = aiokafka.AIOKafkaConsumer, {}
        if setup.is_ours:
            ours = importlib.import_module("safeconsumer.clients.aiokafka")
            make, more = ours.AIOKafkaConsumer, {"log": False}
        self.every = setup.everything(aiokafka.TopicPartition)
        self._full = self.every[: setup.partitions - setup.quiet]
        self._look = setup.look
        self._consumer = make(
            bootstrap_servers=setup.bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_partition_fetch_bytes=setup.largest_fetch,
            **setup.settings,
            **more,
        )
        await self._consumer.start()
        if setup.is_member:
            self._consumer.subscribe([setup.topic])
        else:
            self._consumer.assign(self.every)
            pause = self._consumer.hold if setup.is_ours else self._consumer.pause
            for tp in self.every[len(self._full) :]:
                pause(tp)

    def owned(self):
        return len(self._consumer.assignment())

    def pause(self, partitions):
        self._consumer.pause(*partitions)

    def resume(self, partitions):
        self._consumer.resume(*partitions)

    def poll(self, seconds):
        got = self._consumer.getmany(timeout_ms=int(seconds * 1000))
        batches = self._loop.run_until_complete(got).values()
        return [one.value for batch in batches for one in batch]

    def rewind(self):
        for tp in self._full:
            self._consumer.seek(tp, 0)

    def wait(self, seconds):
        self._loop.run_until_complete(asyncio.sleep(seconds))

    def rest(self):
        """Do nothing, because the event loop does not run between two steps."""

    def within(self, call, *args):
        async def called():
            return call(*args)

        return self._loop.run_until_complete(called())

    def read(self, records, max_records, until):
        return self._loop.run_until_complete(self._read(records, max_records, until))

    async def _read(self, records, max_records, until):
        self.rewind()
        got = 0
        while got < records and (not got or time.monotonic() < until):
            got += await self._take(min(_CHUNK, records - got), max_records)
        return got

    def take(self, most, max_records):
        return self._loop.run_until_complete(self._take(most, max_records))

    async def _take(self, most, max_records):
        if max_records is None:
            got = 0
            async for one in self._consumer:
                _ = one.key, one.value, one.offset
                got += 1
                if got == most:
                    break
            return got
        came = await self._consumer.getmany(timeout_ms=1000, max_records=max_records)
        return sum(map(self._look, came.values()))

    def close(self):
        self._loop.run_until_complete(self._consumer.stop())
        self._loop.close()


class _Confluent(_Blocking):
    def __init__(self, setup):
        confluent = importlib.import_module("confluent_kafka")
        self.every = setup.everything(confluent.TopicPartition, 0)
        self._quiet = self.every[setup.partitions - setup.quiet :]
        self._look = _look_at_texts if setup.deserializes else _look_at_messages
        if setup.has_headers:
            self._look = _look_at_messages_headers
        # By default confluent-kafka reads committed records only.
        settings = {
            "bootstrap.servers": setup.bootstrap,
            "group.id": setup.group,  # librdkafka requires a group id
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **(_TUNED if setup.client.endswith("tuned") else {}),
        }
        if setup.is_member:
            settings["session.timeout.ms"] = _SESSION_MS
        else:
            settings["fetch.wait.max.ms"] = setup.wait_ms
        if setup.is_ours:
            ours = importlib.import_module("safeconsumer.clients.confluent")
            self._consumer = ours.Consumer(settings, log=False)
            for tp in self._quiet:
                self._consumer.hold(tp)
            self._quiet = []
        else:
            self._consumer = confluent.Consumer(settings)
        if setup.is_member:
            self._consumer.subscribe([setup.topic])

    def owned(self):
        return len(self._consumer.assignment())

    def poll(self, seconds):
        one = self._consumer.poll(seconds)
        if one is None:
            return []
        _check(one)
        return [one.value()]

    def pause(self, partitions):
        self._consumer.pause(partitions)

    def resume(self, partitions):
        self._consumer.resume(partitions)

    def rewind(self):
        self._consumer.assign(self.every)
        self._consumer.pause(self._quiet)

    def take(self, most, max_records):
        if max_records is None:
            got, poll = 0, self._consumer.poll
            while got < most and (one := poll(1.0)) is not None:
                _ = one.key(), one.value(), one.offset()
                got += 1
            return got
        # With a timeout, ``consume`` would wait until it has the full number of
        # records.
        consume = self._consumer.consume
        batch = consume(max_records, 0.0) or consume(1, 1.0)
        # Only the last message is checked for an error, because the loops for other
        # clients do not check any.
        if batch:
            _check(batch[-1])
        return self._look(batch)

    def rest(self):
        # With assigned partitions the client would fetch in the background.
        self._consumer.unassign()

    def close(self):
        self._consumer.close()


def _check(message):
    error = message.error()
    if error is not None:
        text = f"an error instead of a record: {error}"
        raise ValueError(text)


def _wall(call, *args):
    start = time.perf_counter()
    call(*args)
    return time.perf_counter() - start


def _toggled(client, partitions):
    return [
        (_wall(client.pause, partitions), _wall(client.resume, partitions))
        for _ in range(_PAIRS)
    ]


def _expect(got, expected):
    if got != expected:
        message = f"{got} instead of {expected}"
        raise ValueError(message)


def _look(batch):
    for one in batch:
        _ = one.key, one.value, one.offset
    return len(batch)


def _look_at_headers(batch):
    for one in batch:
        _ = one.key, one.value, one.offset, one.headers
    return len(batch)


def _look_at_messages(batch):
    for one in batch:
        _ = one.key(), one.value(), one.offset()
    return len(batch)


def _look_at_messages_headers(batch):
    for one in batch:
        _ = one.key(), one.value(), one.offset(), one.headers()
    return len(batch)


def _look_at_texts(batch):
    for one in batch:
        _ = one.key(), one.value().decode(), one.offset()
    return len(batch)


# ---------------------------------------------------------------- the reader


class Reader:
    """Reads a topic with one client, repeatedly from the start or as records arrive."""

    def __init__(self, max_records=None, **setup):
        made = Setup(**setup)
        if made.is_on_one_core:  # new threads inherit these cores
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        self._client = client_of(made)
        self._max_records = max_records
        self._polls = 0
        self._placed = {}
        if made.is_member:
            deadline = time.monotonic() + _BOUND
            while self._client.owned() < made.partitions:
                if time.monotonic() > deadline:
                    message = "nothing was assigned"
                    raise TimeoutError(message)
                self._client.poll(0.5)
        if isinstance(self._client, _KafkaPython):
            self._placed = self._client.hold(made.strangers)

    def read(self, records, seconds=None):
        """
        Read records from the start; repeat this for ``seconds`` if that is set.

        Returns:
            The number of records, the seconds of CPU and of wall time, and the peak
            memory.
        """
        cpu, wall = time.process_time(), time.monotonic()
        until = wall + (seconds or _BOUND)
        passes = [self._client.read(records, self._max_records, until)]
        while seconds and time.monotonic() < until:
            passes.append(self._client.read(records, self._max_records, until))
        cpu, wall = time.process_time() - cpu, time.monotonic() - wall
        *whole, last = passes
        if last > records or not seconds:
            whole.append(last)
        for one in whole:
            _expect(one, records)
        self._client.rest()
        taken = {"records": sum(passes), "cpu": cpu, "wall": wall, "peak": peak_mb()}
        return {**taken, **self._placed}

    def read_fetched(self, records):
        """Read records that are already fetched; return this thread's CPU time per record."""
        self._client.rewind()
        self._client.wait(_FETCHED_AFTER)
        began, got = time.thread_time(), 0
        while got < records:
            most = min(_CHUNK, records - got)
            got += self._client.take(most, self._max_records)
        return {"cpu_us": (time.thread_time() - began) / records * 1e6}

    def stop(self):
        """
        Pause all partitions for half a second while records are ready; resume them.

        Returns:
            ``resumed``: the seconds of wall time from the resume to the delivery of 500
            records. ``toggled``: the seconds of wall time that each of many pauses and
            resumes of one partition took.
        """
        client = self._client
        # Measure the toggles first, while no other thread needs the interpreter.
        toggled = self.toggle()
        client.rewind()
        client.take(_PARKED, _PARKED)
        client.within(client.pause, client.every)
        until, came = time.monotonic() + _PAUSED_FOR, 0
        while time.monotonic() < until:
            came += len(client.poll(0.1))
        _expect(came, 0)
        got, start = 0, time.perf_counter()
        client.within(client.resume, client.every)
        while got < _PARKED and time.perf_counter() < start + _GIVEN_UP:
            got += client.take(_PARKED, _PARKED)
        resumed = time.perf_counter() - start
        client.rest()
        both = map(sum, zip(toggled["pause"], toggled["resume"], strict=True))
        return {"resumed": resumed, "toggled": [*both]}

    def toggle(self):
        """Pause and resume one partition many times; return the wall seconds of each call."""
        client = self._client
        pairs = client.within(_toggled, client, client.every[:1])
        paused, resumed = map(list, zip(*pairs, strict=True))
        return {"pause": paused, "resume": resumed}

    def settle(self):
        """Return the resident memory after a poll without records."""
        self._client.poll(1.0)
        return {"resident": resident_mb()}

    def follow(self, records):
        """
        Consume this many records, each of which has the time of its production as value.

        Returns:
            ``delays``: for each record, the seconds from production to delivery.
            ``cpu``, ``waits`` and ``polls``: the CPU time, the number of system calls
            that made a thread wait, and the number of polls. These three values are per
            record, and do not include the first record.
        """
        delays = []
        self._polls, began = 0, None
        for value in self._taken(records):
            delays.append(time.monotonic() - int(value) / 1e9)
            if began is None:
                began = self._used()
        cpu, waits, polls = (
            (now - then) / max(1, records - 1)
            for now, then in zip(self._used(), began or (), strict=True)
        )
        return {"delays": delays, "cpu": cpu, "waits": waits, "polls": polls}

    def close(self):
        self._client.close()

    def _taken(self, records):
        got, deadline = 0, time.monotonic() + _BOUND
        while got < records:
            self._polls += 1
            for value in self._client.poll(1.0):
                got += 1
                yield value
            if time.monotonic() > deadline:
                message = f"{got} of {records} records came"
                raise TimeoutError(message)

    def _used(self):
        waits = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
        return time.process_time(), waits, self._polls
