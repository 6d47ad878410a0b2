"""
Applies a consumer's deserializers where its worker's handler is called.

Their exceptions are therefore failures of the record, and not of the poll.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from attrs import frozen
from kafka.serializer.wrapper import DeserializeWrapper

from safeconsumer._kafka.decoding.deserializing import deserialized
from safeconsumer.worker.calls import is_async, misfit, refuse_undone
from safeconsumer.worker.groups import is_all, meant
from safeconsumer.worker.handlers import BatchFailure, DeserializationError, Handler
from safeconsumer.worker.settings import check_callable
from safeconsumer.worker.tracebacks import shown

# Errors which show that the data is wrong. Any other error may pass, for example if a
# schema registry cannot be reached.
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
    A consumer's deserializers; None where the consumer has none.

    Raises:
        WorkerSettingError: a deserializer cannot be called with data.
    """

    key: Any
    value: Any

    def __attrs_post_init__(self) -> None:
        for reader in (self.key, self.value):
            # kafka-python wraps every object that it is given.
            if isinstance(reader, DeserializeWrapper) and reader.fn is not None:
                check_callable(reader.fn, "a deserializer", "data")

    def __bool__(self) -> bool:
        return self.key is not None or self.value is not None

    def read(self, record: Any) -> Any:  # noqa: ANN401 - upstream's record
        """
        Return the record with its key and value deserialized.

        The given one is unchanged.

        Raises:
            DeserializationError: the data can never be deserialized.
            Exception: any other error of a deserializer.
        """
        headers = list(record.headers or ())  # a deserializer may change them
        return record._replace(
            key=_read(self.key, "key", record, headers),
            value=_read(self.value, "value", record, headers),
            headers=headers,
        )

    def before(self, handle: Handler, *, is_batch: bool) -> Handler:
        """Return a handler that takes raw records, deserializes them and calls this one."""
        kind = _ReadingAsync if is_async(handle) else _Reading
        return kind(self, handle, _each if is_batch else _one)


def _read(reader: Any, field: str, record: Any, headers: list[Any]) -> Any:  # noqa: ANN401 - any of them
    data = getattr(record, field)
    try:
        return deserialized(reader, record.topic, headers, data)
    except Exception as error:
        if not is_all(error, _FINAL):
            raise
        message = f"the record's {field} cannot be deserialized: {shown(error)}"
        raise DeserializationError(message) from error


@frozen
class _Reading:
    """A handler that takes raw records; it can be pickled if the readers can."""

    readers: Readers
    handle: Handler
    read: Callable[[Readers, Any], AbstractContextManager[Any]]

    def __call__(self, given: Any, context: Any) -> Any:  # noqa: ANN401 - records
        with self.read(self.readers, given) as ready:
            if ready:
                refuse_undone(self.handle(ready, context))


@frozen
class _ReadingAsync(_Reading):
    async def __call__(self, given: Any, context: Any) -> Any:  # noqa: ANN401 - records
        with self.read(self.readers, given) as ready:
            if ready:
                refuse_undone(await self.handle(ready, context))


@contextmanager
def _one(readers: Readers, record: Any) -> Iterator[Any]:  # noqa: ANN401 - upstream's record
    yield readers.read(record)


@contextmanager
def _each(readers: Readers, records: Sequence[Any]) -> Iterator[list[Any]]:
    # Lends the records that can be read; fails with the others, and with what a handler
    # says of those that it got.
    good: list[tuple[int, Any]] = []
    bad: dict[int, Exception] = {}
    for index, record in enumerate(records):
        try:
            good.append((index, readers.read(record)))
        except Exception as error:  # noqa: BLE001 - it is this record's failure
            bad[index] = error
    try:
        yield [record for _, record in good]
    except Exception as error:
        failure = meant(error)
        if not isinstance(failure, BatchFailure):
            raise
        # An index that does not fit those that the handler got would fit the longer,
        # whole batch, so it is refused here.
        wrong = misfit(failure.errors, len(good))
        if wrong is not None:
            raise wrong from failure
        bad.update({good[at][0]: error for at, error in failure.errors.items()})
    if bad:
        raise BatchFailure(bad)
