"""
What runs in a process of the process executor, and whether a handler can get there.
"""

import contextlib
import pickle
import signal
import threading
from multiprocessing.connection import Connection
from typing import Any

from safeconsumer.errors import WorkerSettingError
from safeconsumer.worker import stacks
from safeconsumer.worker.calls import Answer, Handler, call_elsewhere
from safeconsumer.worker.shown import chain, shown


def serve(
    pipe: Connection,
    questions: Connection,
    handle: Handler,
    is_batch: bool,  # noqa: FBT001 - passed by position
    seconds: float,
) -> None:
    """
    Work in a child process until the pipe is closed; meanwhile say where it stands.
    """
    # What a terminal or a service manager sends to all processes at once is for the one
    # that owns the consumer: it drains, and needs this one meanwhile.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(
        target=_tell_stack, args=(questions, threading.get_ident()), daemon=True
    ).start()
    pipe.send(None)  # the handler is here
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            records, about = pipe.recv()
            answer = call_elsewhere(
                handle, records, about, is_batch=is_batch, seconds=seconds
            )
            pipe.send(_sendable(answer))


def _tell_stack(questions: Connection, thread: int) -> None:
    with contextlib.suppress(EOFError, OSError):
        while True:
            questions.recv()
            questions.send(stacks.of_thread(thread))


def call_and_send(*args: Any, **settings: Any) -> Answer:  # noqa: ANN401 - passed on
    """
    Call the handler in a process of somebody's executor.

    An error that cannot be sent back would break that executor with all it has.
    """
    return _sendable(call_elsewhere(*args, **settings))


def _sendable(answer: Answer) -> Answer:
    count, error = answer
    if error is None:
        return answer
    with contextlib.suppress(Exception):  # whatever its class does
        error.add_note(chain(error))  # a traceback does not travel by itself
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes, made just now
    except BaseException:  # noqa: BLE001 - whatever its class does
        plain = RuntimeError(shown(error))
        plain.add_note(chain(error))
        return count, plain
    return answer


def check_picklable(handle: Handler) -> None:
    """
    Return if a handler can be sent to another process.

    Raises:
        WorkerSettingError: it cannot.
    """
    try:
        pickle.dumps(handle)
    except Exception as error:
        message = (
            f"executor='process' sends the handler by name, and {handle!r} has none "
            f"that can be imported: define it at the top of a module"
        )
        raise WorkerSettingError(message) from error
