"""
A private Docker engine under a folder of its own, for machines that run none.

``python -m tests.harness.brokers.engine start FOLDER`` starts it if need be and prints
the ``DOCKER_HOST`` to use; ``... stop FOLDER`` removes what tests left in it and ends
it. The packages docker.io and iptables must be installed; run it as root.
"""

import argparse
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

_TIMEOUT = 120.0


class Engine:
    """One dockerd, its socket, data and log in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._socket = self._folder / "docker.sock"
        self._pid_file = self._folder / "docker.pid"

    @property
    def host(self) -> str:
        """What ``DOCKER_HOST`` must be for clients of this engine."""
        return f"unix://{self._socket}"

    def start(self) -> None:
        """
        Start the engine unless it answers already; return once it answers.

        Raises:
            RuntimeError: dockerd is not installed, or it does not come up.

        """
        if self.answers():
            return
        program = shutil.which("dockerd")
        if program is None:
            msg = "no dockerd in PATH; on Debian: apt-get install docker.io iptables"
            raise RuntimeError(msg)
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._pid() is None:
            self._remove_traces()
        with self._log.open("ab") as log:
            process = subprocess.Popen(  # noqa: S603  our own command line
                [program, *self._options()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # it outlives this command
            )
        self._wait_until_up(process)

    def stop(self) -> None:
        """Remove what testcontainers left, end the engine; nothing if there is none."""
        pid = self._pid()
        if pid is None:
            return
        if self.answers():
            self._remove_left_over()
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _TIMEOUT
        while self._pid() is not None:
            if time.monotonic() > deadline:
                msg = f"dockerd {pid} did not end in {_TIMEOUT} s, see {self._log}"
                raise RuntimeError(msg)
            time.sleep(0.1)
        self._remove_traces()

    def answers(self) -> bool:
        """Whether an engine answers on the socket."""
        connection = http.client.HTTPConnection("docker", timeout=5)
        try:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(5)
            connection.sock.connect(str(self._socket))
            connection.request("GET", "/_ping")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    @property
    def _log(self) -> Path:
        return self._folder / "dockerd.log"

    def _options(self) -> list[str]:
        return [
            f"--host={self.host}",
            f"--data-root={self._folder / 'data'}",
            f"--exec-root={self._folder / 'exec'}",
            f"--pidfile={self._pid_file}",
        ]

    def _pid(self) -> int | None:
        """Return the number of our dockerd, None if it is gone (a zombie has no program)."""
        try:
            pid = int(self._pid_file.read_text())
            program = Path(f"/proc/{pid}/exe").readlink()
        except (OSError, ValueError):
            return None
        return pid if program.name == "dockerd" else None

    def _remove_traces(self) -> None:
        """Delete what a killed engine leaves and the next one stumbles over."""
        containerd_pid = self._folder / "exec" / "containerd" / "containerd.pid"
        for trace in (self._pid_file, self._socket, containerd_pid):
            trace.unlink(missing_ok=True)

    def _remove_left_over(self) -> None:
        """Remove the containers and networks of test sessions that were killed."""
        label = "--filter=label=org.testcontainers.session-id"
        containers = self._docker("ps", "--all", "--quiet", label).split()
        if containers:
            self._docker("rm", "--force", "--volumes", *containers)
        self._docker("network", "prune", "--force", label)

    def _docker(self, *arguments: str) -> str:
        done = subprocess.run(  # noqa: S603  our own command line
            [shutil.which("docker") or "docker", "--host", self.host, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            timeout=_TIMEOUT,
            check=True,
        )
        return done.stdout

    def _wait_until_up(self, process: "subprocess.Popen[bytes]") -> None:
        deadline = time.monotonic() + _TIMEOUT
        while not self.answers():
            if process.poll() is not None or time.monotonic() > deadline:
                log = self._log.read_text(errors="replace")[-4000:]
                msg = f"dockerd did not come up:\n{log}"
                raise RuntimeError(msg)
            time.sleep(0.05)


def main() -> int:
    """Do what the command line says; 0 if it could be done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["start", "stop"])
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    engine = Engine(arguments.folder)
    if arguments.command == "stop":
        engine.stop()
    else:
        engine.start()
        print(engine.host)  # noqa: T201  its answer
    return 0


if __name__ == "__main__":
    sys.exit(main())
