"""Calls the handler in a child process, and sends its exceptions back."""

import contextlib
import contextvars
import faulthandler
import os
import pickle
import signal
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

from attrs import define
from kafka.structs import TopicPartition

from safeconsumer.errors.base import LifespanError
from safeconsumer.worker.calls import failure_of, refuse_unfinished
from safeconsumer.worker.executors.lifespan import enter, not_left
from safeconsumer.worker.handlers import (
    BatchFailure,
    Context,
    Handler,
    MakeLifespan,
    Pause,
    is_for_error,
)
from safeconsumer.worker.revocation import Revocation
from safeconsumer.worker.tracebacks import chain, shorten_tracebacks, shown

# The signal that ends a process whose handler has reached its time limit. Few programs
# use this signal. By default it ends the process and leaves no core file.
ENDS_LATE = signal.SIGVTALRM


def serve(pipe: Connection, stack: Connection) -> None:
    """Handle records in a child process until the parent sends None or closes the pipe."""
    _leave_signals_to_the_worker()
    # If the pipe stayed open in a forked child, or in a program that a handler starts,
    # the parent would not notice the death of this process.
    os.register_at_fork(after_in_child=pipe.close)
    os.set_inheritable(pipe.fileno(), False)  # noqa: FBT003 - the parameter has no keyword
    # At this signal faulthandler writes all stacks. It is C code, so it works whatever
    # the handler is doing.
    faulthandler.register(ENDS_LATE, file=stack.fileno(), chain=True)
    try:
        pipe.send(None)  # the parent waits for this message
        work = pipe.recv_bytes()
    except (EOFError, ConnectionError):
        return
    handle, lifespan = pickle.loads(work)  # noqa: S301 - ours
    try:
        _serve(pipe, handle, lifespan)
    except BaseException as error:
        with contextlib.suppress(OSError):
            pipe.send(packed(not_left(error)))
        raise


def _serve(pipe: Connection, handle: Handler, lifespan: MakeLifespan | None) -> None:
    with contextlib.ExitStack() as stack:
        try:
            state = enter(stack, lifespan)
        except LifespanError as error:
            pipe.send(packed(error))
            return
        with contextlib.suppress(EOFError, ConnectionError):
            pipe.send(None)  # the parent waits for this message, too
            while (question := pipe.recv()) is not None:
                pipe.send_bytes(pickle.dumps((_called(handle, state, *question),)))


def _called(  # noqa: PLR0913, PLR0917 - the fields of the question
    handle: Handler,
    state: Any,  # noqa: ANN401 - the user's own
    given: Any,  # noqa: ANN401 - records
    partition: TopicPartition,
    attempt: int,
    carrier: Mapping[str, str] | None,
) -> "Parcel | None":
    # Returns the packed exception that the call raised, or None.
    if carrier is not None:
        from safeconsumer.worker.tracing import within  # noqa: PLC0415  an extra's

        handle = within(carrier, handle)
    context = Context(partition, attempt, Revocation(), _no_deadline, state)
    try:
        refuse_unfinished(contextvars.copy_context().run(handle, given, context))
    except BaseException as error:  # noqa: BLE001 - a failure of the record or batch
        return packed(failure_of(error))
    return None


def _no_deadline() -> None:
    return None


def _leave_signals_to_the_worker() -> None:
    # A terminal or a service manager sends its signals to all processes, but they are
    # meant for the process that owns the consumer. That process still needs this one
    # while it drains. SIG_IGN is not used, because programs that the handler starts
    # would inherit it.
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _pass_by)
            signal.siginterrupt(number, False)  # noqa: FBT003 - the parameter has no keyword

    def restore() -> None:
        for number, handler in before.items():
            if signal.getsignal(number) is _pass_by:
                signal.signal(number, handler or signal.SIG_DFL)

    os.register_at_fork(after_in_child=restore)


def _pass_by(*_signal: object) -> None:
    """Ignore a signal."""


# ------------------------------------------------------------ errors sent to the parent


def packed(error: BaseException) -> "Parcel":
    """
    Pack an error in a form that can be sent to another process.

    An error that can be pickled arrives unchanged. Any other error is rebuilt with its
    class, or with the nearest base class that the other process can import, so that
    ``Retry.never`` and ``except`` work there as usual. An attribute that cannot be
    pickled is lost.
    """
    with contextlib.suppress(Exception):  # the class may raise anything
        _note_calls(error)  # pickling loses the traceback
    if isinstance(error, Pause):
        error._is_for_error = is_for_error(error)  # noqa: SLF001 - pickling loses the cause, too
    return Parcel(error)


class _Calls(str):
    """A note that contains a traceback; it is pickled as a plain string."""

    __slots__ = ()

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


def _note_calls(error: BaseException) -> None:
    # An exception object that was sent before already has such a note, which is
    # replaced.
    shorten_tracebacks(error)
    notes = getattr(error, "__notes__", None)
    if isinstance(notes, list):
        notes[:] = [one for one in notes if not isinstance(one, _Calls)]
    error.add_note(_Calls(chain(error)))


@define
class Parcel:
    """An error in transit; unpickling the parcel returns the error."""

    error: BaseException

    def __reduce__(self) -> Any:  # noqa: ANN401 - as pickle requires
        # Only the receiving process knows which classes it can import, so it tries
        # these pickled forms in order.
        error, text = _with_packed_errors(self.error), shown(self.error)
        state = {name: one for name, one in error.__dict__.items() if _dumped(one)}
        args = error.args
        if isinstance(error, BaseExceptionGroup):
            args = (error.message, [packed(one) for one in error.exceptions])
        tries: list[object] = [error, (type(error), args, state)]
        for kind in type(error).__mro__:
            tries += [(kind, (text,), state), (kind, (text,), {})]
        return _unpacked, ([_dumped(one) for one in tries], text)


def _with_packed_errors(error: BaseException) -> BaseException:
    # Each error of a batch is packed separately, so that an error that cannot be
    # pickled does not affect the others.
    if not isinstance(error, BatchFailure) or not isinstance(error.errors, dict):
        return error
    apart = {
        at: packed(one) if isinstance(one, BaseException) else one
        for at, one in error.errors.items()
    }
    return _rebuilt(BatchFailure, (apart,), {"errors": apart})


def _dumped(thing: object) -> bytes | None:
    try:
        return pickle.dumps(thing)
    except BaseException:  # noqa: BLE001 - the class may raise anything
        return None


def _unpacked(tries: list[bytes | None], text: str) -> BaseException:
    for one in tries:
        with contextlib.suppress(BaseException):  # the class may raise anything
            found = pickle.loads(one or b"")  # noqa: S301 - ours
            error = _rebuilt(*found) if isinstance(found, tuple) else found
            if isinstance(error, BaseException):
                return error
    return RuntimeError(text)


def _rebuilt(
    kind: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]
) -> BaseException:
    # The constructor is not called, because it may require other arguments.
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error
