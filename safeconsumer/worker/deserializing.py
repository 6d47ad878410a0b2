"""
Applies a consumer's deserializers where its worker's handler is called.

So what they raise is a failure of the record, and not of the poll.
"""

import pickle
import struct
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeAlias

from attrs import frozen
from kafka.serializer.wrapper import DeserializeWrapper

from safeconsumer.errors import WorkerSettingError
from safeconsumer.worker.handlers import (
    BatchFailure,
    DeserializationError,
    is_async,
    misfit,
    refuse_undone,
)
from safeconsumer.worker.queue import KeyOf, record_key
from safeconsumer.worker.settings import check_callable
from safeconsumer.worker.tracebacks import shown

Handler: TypeAlias = Callable[[Any, Any], Any]

# What says that data is wrong. Anything else, such as a schema registry that is away,
# may pass.
_FINAL = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    TypeError,
    ValueError,
    struct.error,
)


@frozen
class Readers:
    """
    The deserializers of a consumer, kafka-python's; None for none.

    Raises:
        WorkerSettingError: one cannot be called with data.
    """

    key: Any
    value: Any

    def __attrs_post_init__(self) -> None:
        for reader in (self.key, self.value):
            # kafka-python wraps whatever it is given.
            if isinstance(reader, DeserializeWrapper) and reader.fn is not None:
                check_callable(reader.fn, "a deserializer", "data")

    def __bool__(self) -> bool:
        return self.key is not None or self.value is not None

    def read(self, record: Any) -> Any:  # noqa: ANN401 - upstream's record
        """
        Return the record with its key and value deserialized; the other stays as it is.

        Raises:
            DeserializationError: it never can be.
            Exception: anything else that a deserializer raised.
        """
        headers = list(record.headers or ())  # a deserializer may change them
        return record._replace(
            key=_read(self.key, "key", record, headers),
            value=_read(self.value, "value", record, headers),
            headers=headers,
        )

    def key_of(self, key: KeyOf) -> KeyOf:
        """
        Return what makes the key of a raw record.
        """
        if key is not record_key:
            return lambda record: key(self.read(record))
        if self.key is None:
            return key
        only_key = Readers(self.key, None)
        return lambda record: record_key(only_key.read(record))

    def before(self, handle: Handler, *, is_batch: bool) -> Handler:
        """
        Return a handler that takes raw records, and calls this one.
        """
        kinds = (
            (_ReadBatchAsync, _ReadAsync) if is_async(handle) else (_ReadBatch, _Read)
        )
        return kinds[not is_batch](self, handle)

    def check_executor(self, executor: object) -> None:
        """
        Return if they can be where the handler is called.

        Raises:
            WorkerSettingError: that is another process, and they cannot be sent there.
        """
        if executor != "process" and not isinstance(executor, ProcessPoolExecutor):
            return
        try:
            pickle.dumps(self)
        except Exception as error:
            message = (
                f"deserializers go to the handler's process by name, and these have "
                f"none that can be imported ({shown(error)}): define them at the top "
                f"of a module, or deserialize in the handler"
            )
            raise WorkerSettingError(message) from error


def _read(reader: Any, field: str, record: Any, headers: list[Any]) -> Any:  # noqa: ANN401 - any of them
    data = getattr(record, field)
    if reader is None:
        return data
    try:
        return _call(reader, record.topic, headers, data)
    except _FINAL as error:
        message = f"its {field} cannot be deserialized: {shown(error)}"
        raise DeserializationError(message) from error


def _call(reader: Any, topic: str, headers: list[Any], data: object) -> object:  # noqa: ANN401 - see above
    # Those of old kafka-python take no headers; it calls them as here.
    try:
        return reader.deserialize(topic, headers, data)
    except TypeError as error:
        try:
            return reader.deserialize(topic, data)
        except TypeError:
            raise error from None


@frozen
class _Read:
    readers: Readers
    handle: Handler

    def __call__(self, record: Any, context: Any) -> Any:  # noqa: ANN401 - the handler's
        return self.handle(self.readers.read(record), context)


@frozen
class _ReadAsync(_Read):
    async def __call__(self, record: Any, context: Any) -> Any:  # noqa: ANN401 - the handler's
        return await self.handle(self.readers.read(record), context)


@frozen
class _ReadBatch:
    readers: Readers
    handle: Handler

    def __call__(self, records: Sequence[Any], context: Any) -> Any:  # noqa: ANN401 - the handler's
        good, bad = self._split(records)
        answer: Any = None
        if good:
            try:
                answer = self.handle([record for _, record in good], context)
            except BatchFailure as failure:
                bad.update(_moved(failure, good))
        refuse_undone(answer)
        if bad:
            raise BatchFailure(bad)

    def _split(
        self, records: Sequence[Any]
    ) -> tuple[list[tuple[int, Any]], dict[int, Exception]]:
        good: list[tuple[int, Any]] = []
        bad: dict[int, Exception] = {}
        for index, record in enumerate(records):
            try:
                good.append((index, self.readers.read(record)))
            except Exception as error:  # noqa: BLE001 - it is this record's
                bad[index] = error
        return good, bad


@frozen
class _ReadBatchAsync(_ReadBatch):
    async def __call__(self, records: Sequence[Any], context: Any) -> Any:  # noqa: ANN401 - the handler's
        good, bad = self._split(records)
        answer: Any = None
        if good:
            try:
                answer = await self.handle([record for _, record in good], context)
            except BatchFailure as failure:
                bad.update(_moved(failure, good))
        refuse_undone(answer)
        if bad:
            raise BatchFailure(bad)


def _moved(
    failure: BatchFailure, good: Sequence[tuple[int, Any]]
) -> dict[int, Exception]:
    # The handler counts among what it was given. What does not fit there would fit the
    # whole batch, which is longer, so it is refused here.
    wrong = misfit(failure.errors, len(good))
    if wrong is not None:
        raise wrong from failure
    return {good[at][0]: error for at, error in failure.errors.items()}
