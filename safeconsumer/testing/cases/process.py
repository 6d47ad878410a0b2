"""
A client's process, as the cases see it.
"""

import contextlib
import json
import queue
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

from tests.conformance.adapters.refusal import AbsentError
from tests.conformance.clients import Client
from tests.conformance.environments import python_of

_ROOT = Path(__file__).parents[2]
_LONG = 30.0
"""Seconds after which a call that should have ended long ago counts as hanging."""


class ClientError(Exception):
    """
    The client raised.

    Attributes:
        kind: the class of the error.
        is_own: whether the client defined that class, rather than Python.
    """

    def __init__(self, kind: str, text: str) -> None:
        module, _, name = kind.rpartition(".")
        self.is_own = module not in {"builtins", "asyncio"}
        self.kind = name if self.is_own else f"bare {name}"
        super().__init__(f"{self.kind}: {text}".removesuffix(": "))


class HangsError(Exception):
    """
    A call did not end within half a minute, or the process did.
    """


class Process:
    """
    One process of ``python -m tests.conformance.adapters``.
    """

    def __init__(self, client: Client, log: Path) -> None:
        with log.open("ab") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - our own command line
                [python_of(client), "-m", "tests.conformance.adapters", client.adapter],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=_ROOT,
                text=True,
            )
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def is_alive(self) -> bool:
        """
        Whether the process runs, frozen or not.
        """
        return self._process.poll() is None

    def call(self, name: str, **args: object) -> Any:  # noqa: ANN401 - a JSON value
        """
        Do one call and return what it returned.

        Raises:
            ClientError: the client raised.
            AbsentError: it has no such call.
            HangsError: it did not answer.
        """
        self.begin(name, **args)
        return self.answer(name)

    def begin(self, name: str, **args: object) -> None:
        """
        Let the client begin a call; :meth:`answer` waits for it.
        """
        with contextlib.suppress(BrokenPipeError):  # answer() tells
            self._process.stdin.write(json.dumps({"call": name, "with": args}) + "\n")
            self._process.stdin.flush()

    def answer(self, name: str) -> Any:  # noqa: ANN401 - a JSON value
        """
        Wait for the call that was begun.
        """
        try:
            line = self._answers.get(timeout=_LONG)
        except queue.Empty:
            self.kill()  # what it would answer later belongs to no call any more
            message = f"{name} did not end in {_LONG:g} s"
            raise HangsError(message) from None
        if not line:
            message = f"the process ended in {name}"
            raise HangsError(message)
        answer: dict[str, Any] = json.loads(line)
        if "absent" in answer:
            raise AbsentError(answer["absent"])
        if "error" in answer:
            raise ClientError(answer["error"], answer["text"])
        return answer["result"]

    def has_answered(self) -> bool:
        """
        Whether the call that was begun has ended.
        """
        return not self._answers.empty()

    def freeze(self) -> None:
        """
        Stop the process where it is; the broker hears nothing from it.
        """
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """
        Let a frozen process go on.
        """
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """
        End the process at once, without a word to the group.
        """
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def _listen(self) -> None:
        with self._process.stdout as lines:
            for line in lines:
                self._answers.put(line)
        self._answers.put("")
