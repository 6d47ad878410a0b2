"""Runs handlers in a child process: what runs there."""

import contextlib
import os
import pickle
import signal
import time
from multiprocessing.connection import Connection
from typing import Any

from safeconsumer.errors.base import LifespanError
from safeconsumer.worker.calls import call_in_process
from safeconsumer.worker.executors.lifespan import MakeLifespan, enter, not_left
from safeconsumer.worker.executors.travel import sendable
from safeconsumer.worker.handlers import Handler

# Shared by a child and its parent: how many records of the hand-over are finished, and
# when the next one was begun, by the clock that all processes share.
FINISHED, BEGAN = 0, 1


def serve(pipe: Connection, progress: Any) -> None:  # noqa: ANN401 - a shared array
    """Work in a child process until it is asked to end, or its pipe is closed."""
    _leave_signals_to_the_worker()
    # Open in a fork, it would hide that this one died.
    os.register_at_fork(after_in_child=pipe.close)
    try:
        pipe.send(None)  # it listens
        work = pipe.recv_bytes()
    except (EOFError, ConnectionError):
        return
    handle, is_batch, seconds, lifespan = pickle.loads(work)  # noqa: S301 - ours
    try:
        _serve(pipe, progress, handle, is_batch, seconds, lifespan)
    except BaseException as error:
        with contextlib.suppress(OSError):
            pipe.send(sendable((0, not_left(error)))[1])
        raise


def _serve(  # noqa: PLR0913, PLR0917 - passed by position
    pipe: Connection,
    progress: Any,  # noqa: ANN401 - a shared array
    handle: Handler,
    is_batch: bool,  # noqa: FBT001 - passed by position
    seconds: float,
    lifespan: MakeLifespan | None,
) -> None:
    def begin(count: int) -> None:
        progress[BEGAN] = time.monotonic()  # first, never too early
        progress[FINISHED] = count

    with contextlib.ExitStack() as stack:
        try:
            state = enter(stack, lifespan)
        except LifespanError as error:
            pipe.send(sendable((0, error))[1])
            return
        with contextlib.suppress(EOFError, ConnectionError):
            pipe.send(None)  # it is ready
            while (question := pipe.recv()) is not None:
                records, about = question
                answer = call_in_process(
                    handle,
                    records,
                    about,
                    is_batch=is_batch,
                    seconds=seconds,
                    state=state,
                    begin=begin,
                )
                pipe.send(sendable(answer))


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
