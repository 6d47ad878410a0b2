"""
Processes that end when the soak does, and speak in lines.
"""

import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.brokers.java import tied_to_us

_LIMIT = 20.0


class Process:
    """
    A program of this suite, with its words on stdin and JSON lines on stdout.

    Thread rules: made by a thread that lives as long as it should.

    Args:
        program: the module it is.
        name: of the process, and of its log.
        options: what it is told.
        logs: where it writes what it has to say.

    Attributes:
        said: the last line it said.
    """

    def __init__(
        self, program: str, name: str, options: Mapping[str, Any], logs: Path
    ) -> None:
        self.name = name
        self.said: dict[str, Any] = {}
        self.is_frozen = False
        with (logs / f"{name}.log").open("ab") as log:
            self._popen = subprocess.Popen(  # noqa: S603 - our own code
                tied_to_us(
                    [
                        *(sys.executable, "-m", program),
                        json.dumps(options),
                    ]
                ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        for line in self._popen.stdout or ():
            self.said = json.loads(line)

    @property
    def is_over(self) -> bool:
        """
        Whether it has ended.
        """
        return self._popen.poll() is not None

    def tell(self, word: str) -> None:
        """
        Write a line to its stdin; nothing if it has ended.
        """
        stdin = self._popen.stdin
        if stdin is None or self.is_over:
            return
        try:
            stdin.write(f"{word}\n")
            stdin.flush()
        except BrokenPipeError:
            pass

    def freeze(self) -> None:
        self._popen.send_signal(signal.SIGSTOP)
        self.is_frozen = True

    def thaw(self) -> None:
        self._popen.send_signal(signal.SIGCONT)
        self.is_frozen = False

    def kill(self) -> None:
        """
        End it at once, as a crash would.
        """
        self._popen.kill()
        self._clear_up()

    def begin_to_end(self) -> None:
        """
        Close its stdin: it is to end by itself.
        """
        if self._popen.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._popen.stdin.close()

    def end(self, limit: float = _LIMIT) -> bool:
        """
        Have it end, and wait; False if it had to be killed.

        Args:
            limit: seconds.
        """
        self.begin_to_end()
        is_in_time = True
        try:
            self._popen.wait(limit)
        except subprocess.TimeoutExpired:
            is_in_time = False
            self._popen.kill()
        self._clear_up()
        return is_in_time

    def _clear_up(self) -> None:
        self._popen.wait(_LIMIT)
        self._listener.join(_LIMIT)
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                pipe.close()
