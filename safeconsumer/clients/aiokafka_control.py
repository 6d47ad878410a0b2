"""Reads and writes the control topics with aiokafka and a member's settings."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from attrs import frozen

from safeconsumer.clients.control_topics import Beginning, Progress
from safeconsumer.errors.base import MissingExtraError, UnsupportedAiokafkaError
from safeconsumer.group import topics
from safeconsumer.group.barrier import Offsets
from safeconsumer.group.control_clients import (
    WRITE_SECONDS,
    ControlClients,
    RecreatedTopic,
    StatusTopic,
)
from safeconsumer.group.fold import RawRecord, raw_record
from safeconsumer.group.topics import Facts

try:
    from aiokafka import AIOKafkaConsumer as UpstreamConsumer
    from aiokafka import (
        AIOKafkaProducer,
        ConsumerRebalanceListener,
        ConsumerRecord,
        TopicPartition,
        __version__,
        errors,
    )
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
    from aiokafka.errors import IllegalStateError
except ImportError as error:
    _MESSAGE = (
        "safeconsumer.clients.aiokafka needs aiokafka: "
        "pip install 'safeconsumer[aiokafka]'"
    )
    raise MissingExtraError(_MESSAGE) from error

__all__ = [
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "IllegalStateError",
    "LoopCalls",
    "TopicPartition",
    "UpstreamConsumer",
    "control_clients",
    "require_supported",
    "run_on_thread",
    "stop_client",
]

log = logging.getLogger("safeconsumer.group")

# Private names of aiokafka: a member's `_coordinator`, with `member_id` and
# `generation`, and a consumer's `_client`, its connections.
_SUPPORTED = ("0.13", "0.14")
# The member's settings for connection and authentication are copied; its settings for
# groups, records and timeouts are not.
_COPIED = ("bootstrap_servers", "connections_max_idle_ms", "sasl_", "security_", "ssl_")
_ASK_SECONDS = 5
_ASK_MS = _ASK_SECONDS * 1000
_FETCH_MS = 500
_QUERY_FETCH_MS = 20
_REFUSED = (
    errors.ClusterAuthorizationFailedError,
    errors.TopicAuthorizationFailedError,
)


def require_supported() -> None:
    """
    Raise an error if the installed aiokafka version is not supported.

    Raises:
        UnsupportedAiokafkaError: the message names the installed and the supported
            versions.
    """
    if not __version__.startswith(tuple(f"{one}." for one in _SUPPORTED)):
        message = (
            f"aiokafka {__version__} is not supported (this package was not tested with "
            "it, and it may differ inside): install 'aiokafka>=0.13,<0.15'"
        )
        raise UnsupportedAiokafkaError(message)


async def run_on_thread(call: Callable[[], None]) -> None:
    """Run a call on a new thread, because the program's threads may all be busy."""
    executor = ThreadPoolExecutor(1, "safeconsumer-asyncio")
    try:
        await asyncio.get_running_loop().run_in_executor(executor, call)
    finally:
        executor.shutdown(wait=False)


async def stop_client(client: Any, stop: Coroutine[Any, Any, None]) -> None:  # noqa: ANN401 - a consumer or producer
    """
    Stop a client with its own method, and close its connections in any case.

    While a fetch is waiting for a retry, the stop method in aiokafka 0.13 and 0.14
    raises CancelledError although nobody has cancelled it, because ``Fetcher.close``
    awaits tasks that it has cancelled.
    """
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    try:
        await stop
    except asyncio.CancelledError:
        is_producer = isinstance(client, AIOKafkaProducer)
        await (client.client if is_producer else client._client).close()  # noqa: SLF001 - see above
        if task is not None and task.cancelling() > before:
            raise


class LoopCalls:
    """
    Runs the control threads' coroutines, and their clients, in the member's event loop.

    aiokafka's clients are tied to one loop, and a program's token provider may be, too.
    While that loop is blocked, control records are not read, reports are not written,
    and records are not delivered.

    Thread rules: any thread, except that :meth:`end` may be called only on the loop's
    thread, and :meth:`run` only on other threads.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._running = set[asyncio.Task[Any]]()
        # Each started client, with the task that stops it, if there is one.
        self._clients: dict[Any, asyncio.Future[None] | None] = {}
        self._is_over = False

    @property
    def is_in_loop(self) -> bool:
        """Whether the caller is on the loop's thread."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:  # no event loop runs on this thread
            return False

    def start(self, call: Coroutine[Any, Any, Any]) -> Future[Any]:
        """
        Start a coroutine without blocking.

        Raises:
            RuntimeError: the loop or the member is closed.
        """
        work = self._tracked(call)
        try:
            if not self._is_over:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            pass
        work.close()
        call.close()
        message = "the member or its event loop is closed"
        raise RuntimeError(message)

    async def _tracked(self, call: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - what it returns
        task: asyncio.Task[Any] = asyncio.ensure_future(call)
        self._running.add(task)
        try:
            return await task
        finally:
            self._running.discard(task)

    def run(self, call: Coroutine[Any, Any, Any], seconds: float) -> Any:  # noqa: ANN401 - what it returns
        """Run a coroutine with a time limit; return its result, or raise its error."""
        future = self.start(call)
        try:
            return future.result(seconds)
        except TimeoutError:
            future.cancel()
            raise

    async def open(self, client: Any) -> None:  # noqa: ANN401 - a consumer or producer
        """Start a client; :meth:`close` or :meth:`end` stops it."""
        self._clients[client] = None
        await client.start()

    def close(self, client: Any) -> None:  # noqa: ANN401 - likewise
        """Stop a client without waiting until it has stopped."""
        with suppress(RuntimeError):  # end() stops all clients
            self.start(self._stop(client))

    async def _stop(self, client: Any) -> None:  # noqa: ANN401 - likewise
        stopping = self._clients[client]
        if stopping is None:
            self._clients[client] = stopping = asyncio.ensure_future(
                stop_client(client, client.stop())
            )
        await asyncio.wait([stopping])  # goes on even if this task is cancelled
        if stopping.exception() is not None:
            log.debug("a client ended with an error", exc_info=stopping.exception())
        self._clients.pop(client, None)

    async def end(self) -> None:
        """Cancel the running coroutines, and stop all clients."""
        self._is_over = True
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
        for client in tuple(self._clients):
            await self._stop(client)


def control_clients(settings: Mapping[str, Any], calls: LoopCalls) -> ControlClients:
    """
    Return the control clients for a member with these settings.

    Args:
        settings: the member's settings, as passed to its constructor.
        calls: runs coroutines in the member's loop.
    """
    copied = {k: v for k, v in settings.items() if k.startswith(_COPIED)}
    client_id = settings.get("client_id")
    base = {**copied, "client_id": f"{client_id or 'safeconsumer'}-control"}
    return ControlClients(
        group_id=settings.get("group_id"),
        client_id=str(client_id or ""),
        holds_topic=lambda name: HoldsTopic(base, name, calls),
        status_topic=lambda name: StatusTopic(
            partial(_ReportProducer, base, name, calls), _is_missing, _is_refused
        ),
    )


@frozen
class _Read:
    """
    The result of one read, which takes effect when the control thread receives it.

    Attributes:
        at: the offset after the records that were read.
        last: the last record before that offset, for a later comparison.
        records: the records that were read.
    """

    at: int
    last: ConsumerRecord | None
    records: Sequence[RawRecord] = ()


class HoldsTopic:
    """
    Reads the holds topic with one consumer, and queries it with another.

    A fetch keeps a consumer's connection busy for half a second, so urgent requests use
    a separate connection. Neither consumer joins a group.

    Args:
        base: the settings of the connection.
        name: the topic.
        calls: runs coroutines in the member's loop.
    """

    def __init__(self, base: Mapping[str, Any], name: str, calls: LoopCalls) -> None:
        more = {"auto_offset_reset": "none", "request_timeout_ms": _ASK_MS}
        self._base, self._name, self._calls = {**base, **more}, name, calls
        self._admin_base = {**base, "request_timeout_ms": _ASK_MS}
        self._partition = TopicPartition(name, 0)
        self._reader: UpstreamConsumer | None = None
        self._query_consumer: UpstreamConsumer | None = None
        self._asking = asyncio.Lock()
        self._turning: Future[Any] | None = None
        self._last: ConsumerRecord | None = None
        self._progress = Progress(name)

    @property
    def positions(self) -> Offsets:
        """The offset below which all records were returned."""
        return self._progress.offsets

    @property
    def is_complete(self) -> bool:
        """Whether the reader has reached the end that the topic had at :meth:`begin`."""
        return self._progress.is_complete

    def facts(self) -> Facts:
        """Return the topic's settings; raise if the topic is missing or may not be read."""
        found: Facts = self._calls.run(self._facts(), 2 * _ASK_SECONDS)
        return found

    async def _facts(self) -> Facts:
        admin = AIOKafkaAdminClient(**self._admin_base)
        try:
            await admin.start()
            resource = ConfigResource(ConfigResourceType.TOPIC, self._name)
            (answer,) = await admin.describe_configs([resource])
            code, _, _, _, entries = answer.resources[0]
            error = errors.for_code(code)
            if code and not issubclass(error, _REFUSED):
                is_missing = issubclass(error, errors.UnknownTopicOrPartitionError)
                raise error(*([topics.absent(self._name)] if is_missing else ()))
            settings = None if code else {one[0]: str(one[1]) for one in entries}
            partitions = await _partitions_of(admin, self._name, is_there=not code)
            return Facts(self._name, partitions, settings)
        finally:
            await admin.close()

    # ------------------------------------------------------------ reading

    def begin(self) -> tuple[RecreatedTopic, ...]:
        """Connect; return the topic if it was recreated."""
        beginning, self._last = self._calls.run(self._begin(), 4 * _ASK_SECONDS)
        return self._progress.begin(beginning)

    async def _begin(self) -> tuple[Beginning, ConsumerRecord | None]:
        tp = self._partition
        # Idle fetches must end soon, because the query consumer's requests wait behind
        # them.
        query_consumer = UpstreamConsumer(
            **self._base, fetch_max_wait_ms=_QUERY_FETCH_MS
        )
        self._query_consumer = query_consumer
        self._reader = reader = UpstreamConsumer(**self._base)
        reader.assign([tp])
        await self._calls.open(query_consumer)
        await self._calls.open(reader)
        first = (await query_consumer.beginning_offsets([tp]))[tp]
        end = (await query_consumer.end_offsets([tp]))[tp]
        is_other = end < self._progress.at or await self._is_other(reader, first)
        beginning = self._progress.beginning(first, end, is_other=is_other)
        reader.seek(tp, beginning.at)
        last = self._last
        if beginning.remade or (last is not None and last.offset < first):
            last = None  # the record was deleted
        return beginning, last

    async def _is_other(
        self, reader: UpstreamConsumer, first: int, wait_ms: int = _ASK_MS
    ) -> bool:
        last = self._last
        if last is None or last.offset < first:
            return False
        reader.seek(self._partition, last.offset)
        waiting = {"timeout_ms": wait_ms, "max_records": 1}
        found = await reader.getmany(self._partition, **waiting)
        if reader.highwater(self._partition) is None:
            message = f"no answer to a fetch from {self._name}"
            raise errors.KafkaTimeoutError(message)
        return any(_differs(one, last) for one in found.get(self._partition, ()))

    def turn(self, wait_ms: float) -> Sequence[RawRecord]:
        """Return the next records."""
        began = time.monotonic()
        self._turning = self._calls.start(self._turn(min(wait_ms, _FETCH_MS)))
        read = _Read(self._progress.at, self._last)
        try:
            read = self._turning.result(_ASK_SECONDS)
        except CancelledError:  # wake() has cancelled the read
            pass
        except TimeoutError:
            self._turning.cancel()
            raise
        if self._progress.is_time_to_ask():
            self._calls.start(self._check_end(read.at))
        self._progress.note_read(began, _FETCH_MS / 1000, read.at)
        self._last = read.last
        return read.records

    async def _turn(self, wait_ms: float) -> _Read:
        tp, reader = self._partition, self._reader
        if reader is None:
            raise errors.ConsumerStoppedError
        # aiokafka has no topic ids, so the last record is read again and compared: from
        # time to time, and with each new record. A new record may belong to a recreated
        # topic, and would then take the place of the last record in every comparison.
        at, last = self._progress.at, self._last
        if last is not None and self._progress.is_time_to_compare():
            reader.seek(tp, last.offset)
        elif await reader.position(tp) > at:
            # An earlier read was cancelled after it had fetched these records.
            reader.seek(tp, at)
        is_compared = last is not None and await reader.position(tp) <= last.offset
        records = await self._fetched(reader, wait_ms)
        if records and last is not None and not is_compared:
            # A response ends with a segment, so this one may lack the new records. They
            # do not belong to the known topic if it now has another record at the last
            # offset.
            reader.seek(tp, last.offset)
            again = await self._fetched(reader, wait_ms)
            records = [
                *again,
                *(one for one in records if again and one.offset > again[-1].offset),
            ]
        if last is not None and any(_differs(one, last) for one in records):
            message = f"{self._name} was recreated"
            raise errors.UnknownTopicOrPartitionError(message)
        fresh = [one for one in records if one.offset >= at]
        # The position may be past offsets that have no record, such as the end of a
        # transaction.
        at = max(at, await reader.position(tp), *(one.offset + 1 for one in fresh))
        return _Read(at, fresh[-1] if fresh else last, [*map(raw_record, fresh)])

    async def _fetched(
        self, reader: UpstreamConsumer, wait_ms: float
    ) -> Sequence[ConsumerRecord]:
        try:
            found = await reader.getmany(self._partition, timeout_ms=wait_ms)
        except errors.TopicAuthorizationFailedError as error:
            message = f"no right to read {self._name}: {topics.ACLS}"
            raise errors.TopicAuthorizationFailedError(message) from error
        records: Sequence[ConsumerRecord] = found.get(self._partition, ())
        return records

    async def _check_end(self, position: int) -> None:
        if (query_consumer := self._query_consumer) is not None:
            with suppress(errors.KafkaError):
                self._progress.note_end(position, await self._end_by(query_consumer))

    # ------------------------------------------------------------ asking

    def ask_end(self, answer: Callable[[Offsets | None], object]) -> None:
        """Call ``answer`` with the topic's end; None if it was recreated or unanswered."""
        self._calls.start(self._ask_end(answer))

    async def _ask_end(self, answer: Callable[[Offsets | None], object]) -> None:
        ends = None
        try:
            async with self._asking:
                if (query_consumer := self._query_consumer) is not None:
                    end = await self._end_by(query_consumer)
                    if await self._is_same(query_consumer):
                        ends = {(self._name, 0): end}
        except errors.KafkaError:
            pass
        finally:
            answer(ends)

    async def _end_by(self, query_consumer: UpstreamConsumer) -> int:
        (end,) = (await query_consumer.end_offsets([self._partition])).values()
        return int(end)

    async def _is_same(self, query_consumer: UpstreamConsumer) -> bool:
        """Return whether the topic still contains the last record that was read."""
        last = self._last
        if last is None:
            return True
        query_consumer.assign([self._partition])  # this drops data from earlier fetches
        try:
            return not await self._is_other(query_consumer, last.offset, _FETCH_MS)
        finally:
            query_consumer.unsubscribe()

    def wake(self) -> None:
        """Make a running :meth:`turn` stop waiting."""
        if (turning := self._turning) is not None:
            turning.cancel()

    def close(self) -> None:
        """Close the clients without waiting until they have stopped."""
        clients = self._reader, self._query_consumer
        self._reader = self._query_consumer = None
        for client in clients:
            if client is not None:
                self._calls.close(client)


class _ReportProducer:
    # Write with aiokafka's producer in the member's loop.

    def __init__(self, base: Mapping[str, Any], name: str, calls: LoopCalls) -> None:
        self._base, self._name, self._calls = base, name, calls
        self._producer: AIOKafkaProducer = self._run(self._connected())

    def _run(self, call: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - what it returns
        return self._calls.run(call, WRITE_SECONDS + 1)

    async def _connected(self) -> AIOKafkaProducer:
        admin = AIOKafkaAdminClient(**self._base)
        try:
            # A producer would request metadata for a missing topic, and a broker might
            # then create it.
            await admin.start()
            await _partitions_of(admin, self._name)
        finally:
            await admin.close()
        producer = AIOKafkaProducer(
            **self._base,
            acks="all",
            compression_type="gzip",
            request_timeout_ms=WRITE_SECONDS * 1000,
        )
        await self._calls.open(producer)
        return producer

    def write(self, key: bytes, value: bytes, at_ms: int) -> int:
        call = self._producer.send_and_wait(
            self._name, value, key, partition=0, timestamp_ms=at_ms
        )
        return int(self._run(call).timestamp)

    def close(self) -> None:
        self._calls.close(self._producer)


def _is_missing(error: BaseException) -> bool:
    return isinstance(error, errors.UnknownTopicOrPartitionError)


def _is_refused(error: BaseException) -> bool:
    return isinstance(error, _REFUSED)


async def _partitions_of(
    admin: AIOKafkaAdminClient, name: str, *, is_there: bool = False
) -> int:
    # A request that names a missing topic could create the topic, if brokers allow
    # that.
    found = await admin.describe_topics([name] if is_there else None)
    described = {one["topic"]: one for one in found}
    if not (partitions := described.get(name, {}).get("partitions")):
        raise errors.UnknownTopicOrPartitionError(topics.absent(name))
    return len(partitions)


def _differs(one: ConsumerRecord, other: ConsumerRecord) -> bool:
    is_same_place = one.offset == other.offset
    return is_same_place and (one.timestamp, one.key, one.value) != (
        other.timestamp,
        other.key,
        other.value,
    )
