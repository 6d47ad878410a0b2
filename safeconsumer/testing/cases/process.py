"""
Controls a process that runs a consumer for the cases.

A group member that a case freezes, kills or measures must run in a separate process.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from safeconsumer.testing.cases.outcomes import AbsentError

_LONG = 30.0
"""Seconds after which a call counts as hanging."""

_START = 120.0
"""The limit for the first call, before which the process must start and import its client."""


class ClientError(Exception):
    """
    The client raised an exception; its traceback is in the notes of this error.

    Attributes:
        kind: the name of the exception's class.
        is_own: whether the client defined that class, rather than Python.
    """

    def __init__(self, kind: str, text: str) -> None:
        module, _, name = kind.rpartition(".")
        self.is_own = module not in {"builtins", "asyncio"}
        self.kind = name if self.is_own else f"bare {name}"
        super().__init__(f"{self.kind}: {text}".removesuffix(": "))


class HangsError(Exception):
    """A call took over 30 seconds (the first call: two minutes), or the process exited."""


@frozen(kw_only=True)
class Launch:
    """
    How to start a process with an adapter.

    Attributes:
        adapter: ``module:Class``, see :mod:`safeconsumer.testing.cases.member`.
        arguments: the arguments for the adapter's class.
        path: folders for the ``PYTHONPATH`` of the process.
    """

    adapter: str
    arguments: tuple[str, ...] = ()
    path: tuple[str, ...] = ()

    @property
    def command(self) -> list[str]:
        """The command line of the process."""
        member = "safeconsumer.testing.cases.member"
        return [sys.executable, "-m", member, self.adapter, *self.arguments]

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment of the process: a copy of ours with another ``PYTHONPATH``."""
        return {**os.environ, "PYTHONPATH": os.pathsep.join(self.path)}


def launch_of(consumer: str) -> Launch:
    """
    Return how to start a class with kafka-python's methods on this ``sys.path``.

    Args:
        consumer: ``module:Class``.
    """
    return Launch(
        adapter="safeconsumer.testing.cases.adapter:Adapter",
        arguments=(consumer,),
        path=tuple(str(Path(folder).absolute()) for folder in sys.path),
    )


def result_of(answer: dict[str, Any]) -> Any:  # noqa: ANN401  a JSON value
    """Return the result of a call, or raise the error that its process reports."""
    if "absent" in answer:
        raise AbsentError(answer["absent"])
    if "error" in answer:
        error = ClientError(answer["error"], answer["text"])
        error.add_note(answer["trace"])
        raise error
    return answer["result"]


class Process:
    """
    A process that runs ``python -m safeconsumer.testing.cases.member``.

    Args:
        launch: how to start the process.
        log: the file to which the stderr of the process is appended.
    """

    def __init__(self, launch: Launch, log: Path) -> None:
        with log.open("ab") as errors:
            self._process = subprocess.Popen(  # noqa: S603  our own command line
                launch.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=launch.environment,
                text=True,
            )
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._limit = _START
        self._awaited = 0
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def is_alive(self) -> bool:
        """Whether the process is running, frozen or not."""
        return self._process.poll() is None

    @property
    def is_at_rest(self) -> bool:
        """Whether every call's answer has been received."""
        return not self._awaited

    def call(self, name: str, *args: object) -> Any:  # noqa: ANN401  a JSON value
        """
        Run a call in the process, and return its result.

        Raises:
            ClientError: the client raised an exception.
            AbsentError: the client does not have that call.
            HangsError: the process did not answer.
        """
        self.begin(name, *args)
        return self.answer(name)

    def begin(self, name: str, *args: object) -> None:
        """Start a call in the process; :meth:`answer` waits for its result."""
        assert self._process.stdin is not None  # noqa: S101  a pipe
        self._awaited += 1
        with contextlib.suppress(BrokenPipeError):  # answer() reports the error
            request = json.dumps({"call": name, "with": args}, default=list)
            self._process.stdin.write(f"{request}\n")
            self._process.stdin.flush()

    def answer(self, name: str) -> Any:  # noqa: ANN401  a JSON value
        """Wait for the result of the call that was started."""
        __tracebackhide__ = True
        try:
            line = self._answers.get(timeout=self._limit)
        except queue.Empty:
            self.kill()  # a late answer would be taken for another call's answer
            message = f"{name} did not end in {self._limit:g} s"
            raise HangsError(message) from None
        self._limit = _LONG
        self._awaited -= 1
        if not line:
            message = f"the process ended in {name}"
            raise HangsError(message)
        return result_of(json.loads(line))

    def has_answered(self) -> bool:
        """Return whether the call that was started has finished."""
        return not self._answers.empty()

    def freeze(self) -> None:
        """Suspend the process (SIGSTOP)."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen process continue (SIGCONT)."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process immediately, so that it does not leave its group."""
        assert self._process.stdin is not None  # noqa: S101  a pipe
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None  # noqa: S101  a pipe
        with self._process.stdout as lines:
            for line in lines:
                self._answers.put(line)
        self._answers.put("")
