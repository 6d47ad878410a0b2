"""
Runs a consumer's deserializers where the worker's handler is called.

An exception of a deserializer therefore fails the record, not the poll.

kafka-python calls deserializers on one thread, so they may keep state. A worker calls
them on the threads of many handlers, but never two calls at a time. A record is
deserialized under the locks of both the key's and the value's deserializer, because the
two may share an object such as a decompressor.
"""

import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from weakref import WeakValueDictionary

from attrs import field, frozen
from kafka.serializer.wrapper import DeserializeWrapper

from safeconsumer._kafka.decoding.deserializing import deserialized
from safeconsumer._kafka.fork import run_in_child
from safeconsumer.worker.calls import index_mismatch, with_block
from safeconsumer.worker.groups import deciding_error, is_all
from safeconsumer.worker.handlers import BatchFailure, DeserializationError, Handler
from safeconsumer.worker.settings import check_callable
from safeconsumer.worker.tracebacks import shown

# Errors that invalid data causes. Any other error may be temporary, for example because
# a schema registry is unreachable.
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


class _Locks:
    """
    The locks of all deserializers that this process's workers use, one per object.

    Several workers may share a deserializer, and so may keys and values. A lock exists
    as long as a Readers object refers to it. That object also refers to the
    deserializer, so that no other object can get the same ``id`` during that time. The
    locks are re-entrant, because a signal handler may interrupt a deserializer and
    deserialize, too.
    """

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Forget all locks, because a forked child may lack the thread that owns a lock."""
        self._lock = threading.RLock()
        self._found: WeakValueDictionary[int, Any] = WeakValueDictionary()

    def of(self, *readers: object) -> tuple[Any, Any]:
        """
        Return the locks of two deserializers in the order in which to acquire them.

        The order is the same in every call for the two deserializers, so that two
        threads never wait for each other. Both locks are the same lock if the
        deserializers share one.
        """
        used = sorted({id(_called(one)) for one in readers if one is not None})
        with self._lock:
            locks = [self._found.setdefault(one, threading.RLock()) for one in used]
        locks = locks or [threading.RLock()]
        return locks[0], locks[-1]


_LOCKS = _Locks()
run_in_child(_LOCKS.renew)


def _called(reader: Any) -> object:  # noqa: ANN401 - any deserializer
    # Returns the object that has the deserializer's state. The deserializer itself is
    # no use as a key, because kafka-python wraps it, and each lookup of a bound method
    # creates a new object.
    given = reader.fn if isinstance(reader, DeserializeWrapper) else reader
    owner = getattr(given, "__self__", None)
    return given if owner is None or isinstance(owner, ModuleType) else owner


@frozen
class Readers:
    """
    The deserializers of a consumer for keys and for values; each may be None.

    Raises:
        WorkerSettingError: a deserializer does not accept one argument, the data.
    """

    key: Any
    value: Any
    _locks: tuple[Any, Any] = field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        for reader in (self.key, self.value):
            # kafka-python wraps every deserializer, even None.
            if isinstance(reader, DeserializeWrapper) and reader.fn is not None:
                check_callable(reader.fn, "a deserializer", "data")

    @_locks.default
    def _find_locks(self) -> tuple[Any, Any]:
        return _LOCKS.of(self.key, self.value)

    def __reduce__(self) -> tuple[type["Readers"], tuple[Any, Any]]:
        # In another process the deserializers are different objects, so they get new locks.
        return Readers, (self.key, self.value)

    def __bool__(self) -> bool:
        return self.key is not None or self.value is not None

    def read(self, record: Any) -> Any:  # noqa: ANN401 - upstream's record
        """
        Return a copy of a record with its key and value deserialized.

        The given record stays unchanged. The call waits while another thread runs one
        of the deserializers.

        Raises:
            DeserializationError: the data is invalid, so no later attempt can succeed.
            Exception: any other error of a deserializer.
        """
        headers = list(record.headers or ())  # a deserializer may change the headers
        first, second = self._locks
        with first, second:
            return record._replace(
                key=_read(self.key, "key", record, headers),
                value=_read(self.value, "value", record, headers),
                headers=headers,
            )

    def before(self, handle: Handler, *, is_batch: bool) -> Handler:
        """Return a handler that deserializes raw records and passes them to ``handle``."""
        return with_block(handle, self.lend_batch if is_batch else self.lend_record)

    @contextmanager
    def lend_record(self, record: Any, _context: object) -> Iterator[Any]:  # noqa: ANN401 - upstream's
        """Yield the deserialized record, for a handler's call."""
        yield self.read(record)

    @contextmanager
    def lend_batch(
        self, records: Sequence[Any], _context: object
    ) -> Iterator[list[Any]]:
        """
        Yield the records of a batch that can be deserialized, for a handler's call.

        Raises:
            BatchFailure: some records cannot be deserialized, or the handler has raised
                a BatchFailure; the exception contains the errors of both kinds.
        """
        good: list[tuple[int, Any]] = []
        bad: dict[int, Exception] = {}
        for index, record in enumerate(records):
            try:
                good.append((index, self.read(record)))
            except Exception as error:  # noqa: BLE001 - the error is this record's failure
                bad[index] = error
        try:
            yield [record for _, record in good]
        except Exception as error:
            failure = deciding_error(error)
            if not isinstance(failure, BatchFailure):
                raise
            # The whole batch may be longer than the list that the handler got, so an
            # index that is out of range in the handler's list might be valid in the
            # whole batch. Such an index is refused before the indexes are translated.
            wrong = index_mismatch(failure.errors, len(good))
            if wrong is not None:
                raise wrong from failure
            bad.update({good[at][0]: error for at, error in failure.errors.items()})
        if bad:
            raise BatchFailure(bad)


def _read(reader: Any, field: str, record: Any, headers: list[Any]) -> Any:  # noqa: ANN401 - any of them
    data = getattr(record, field)
    try:
        return deserialized(reader, record.topic, headers, data)
    except Exception as error:
        if not is_all(error, _FINAL):
            raise
        message = f"the record's {field} cannot be deserialized: {shown(error)}"
        raise DeserializationError(message) from error
