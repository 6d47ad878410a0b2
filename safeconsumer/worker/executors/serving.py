"""Runs handlers in a child process: what runs there."""

import contextlib
import contextvars
import faulthandler
import os
import pickle
import signal
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from typing import Any

from attrs import frozen
from kafka.structs import TopicPartition

from safeconsumer.errors.base import LifespanError
from safeconsumer.worker.calls import blamed, refuse_undone
from safeconsumer.worker.executors.lifespan import MakeLifespan, enter, not_left
from safeconsumer.worker.executors.travel import Parcel, packed
from safeconsumer.worker.handlers import Context, Handler
from safeconsumer.worker.revocation import Revocation

# Seconds; a time limit beyond it is none: faulthandler's clock has no more bits.
_MOST_SECONDS = 1e9


def serve(pipe: Connection, stack: Connection) -> None:
    """Work in a child process until it is asked to end, or its pipe is closed."""
    _leave_signals_to_the_worker()
    # Open in a fork, or in a program that a handler starts, it would hide that this
    # process died.
    os.register_at_fork(after_in_child=pipe.close)
    os.set_inheritable(pipe.fileno(), False)  # noqa: FBT003 - the parameter has no keyword
    # What is more than a pipe takes is left out: it would keep this process from its end.
    os.set_blocking(stack.fileno(), False)
    try:
        pipe.send(None)  # it listens
        work = pipe.recv_bytes()
    except (EOFError, ConnectionError):
        return
    handle, limit, lifespan = pickle.loads(work)  # noqa: S301 - ours
    try:
        _serve(pipe, _Caller(handle, limit, stack), lifespan)
    except BaseException as error:
        with contextlib.suppress(OSError):
            pipe.send(packed(not_left(error)))
        raise


def _serve(pipe: Connection, caller: "_Caller", lifespan: MakeLifespan | None) -> None:
    with contextlib.ExitStack() as stack:
        try:
            state = enter(stack, lifespan)
        except LifespanError as error:
            pipe.send(packed(error))
            return
        with contextlib.suppress(EOFError, ConnectionError):
            pipe.send(None)  # it is ready
            while (question := pipe.recv()) is not None:
                pipe.send_bytes(pickle.dumps((caller.call(state, *question),)))


@frozen
class _Caller:
    """
    Calls a handler, and ends this process at the handler's time limit.

    Attributes:
        handle: the handler.
        limit: seconds that a call may take; None for no limit.
        stack: takes the stacks of all threads then.
    """

    handle: Handler
    limit: float | None
    stack: Connection

    def call(
        self,
        state: Any,  # noqa: ANN401 - the user's own
        given: Any,  # noqa: ANN401 - records
        partition: TopicPartition,
        attempt: int,
        carrier: Mapping[str, str] | None,
    ) -> Parcel | None:
        """Return the error of a call."""
        handle = self.handle
        if carrier is not None:
            from safeconsumer.worker.tracing import within  # noqa: PLC0415  an extra's

            handle = within(carrier, handle)
        context = Context(partition, attempt, Revocation(), _no_deadline, state)
        try:
            with self._in_time():
                refuse_undone(contextvars.copy_context().run(handle, given, context))
        except BaseException as error:  # noqa: BLE001 - the record, or the batch, has failed
            return packed(blamed(error))
        return None

    @contextlib.contextmanager
    def _in_time(self) -> Iterator[None]:
        if self.limit is None or self.limit > _MOST_SECONDS:
            yield
            return
        # The process exits at the limit whatever the handler is in, also if that never
        # releases the lock of the interpreter.
        faulthandler.dump_traceback_later(
            self.limit, exit=True, file=self.stack.fileno()
        )
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()


def _no_deadline() -> None:
    return None


def _leave_signals_to_the_worker() -> None:
    # Signals that a terminal or a service manager sends to all processes at once are
    # for the process that owns the consumer: it drains, and needs this one meanwhile.
    # This does not use SIG_IGN, which programs that the handler starts would inherit.
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
    """Do nothing."""
