"""Runs a Spark Connect server without additional jars, in a process that can be killed."""

import os
import signal
import socket
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from safeconsumer.spark.python import SafeKafkaSource
from tests.harness.processes import ROOT, logged
from tests.harness.spark.fixtures import SETTINGS
from tests.harness.waiting import repeat_until

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_PLANNER = b"pyspark.sql.streaming.python_streaming_source_runner"
# Spark gives each of its Python processes ten seconds to connect. This is too short on
# a busy machine, and no setting changes it.
_TOO_LATE = "connect back"
_LIMIT = 120.0


class ConnectServer:
    """
    Runs a server; :meth:`session` makes a client.

    Leaving the context manager kills the server.
    """

    def __init__(self, folder, **settings):
        import pyspark  # noqa: PLC0415  only if it is installed

        self._home = Path(pyspark.__path__[0])
        self._log = folder / "connect.log"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self._settings = settings
        self._running = ExitStack()
        self._process = None
        self._clients = []

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._close_clients()
        self._running.close()

    def _close_clients(self):
        # A client whose server is gone would retry for minutes when Python exits.
        while self._clients:
            self._clients.pop().close()

    def start(self):
        settings = {
            **SETTINGS,
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self._port),
            "spark.log.level": "WARN",
            **self._settings,
        }
        command = [str(self._home / "bin" / "spark-submit"), "--class", _CLASS]
        command += ["--name", "connect", "--master", "local[2]"]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        env = {
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "SPARK_HOME": str(self._home),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self._process = self._running.enter_context(logged(command, self._log, env))
        for _ in repeat_until(self._answers, "a Connect server", _LIMIT, seen=self.log):
            assert self._process.poll() is None, self.log()
            time.sleep(0.05)

    def kill(self):
        """Kill the server together with the Python processes that it started."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._running.close()
        self._close_clients()

    def planners(self):
        """Return the ids of the processes that plan batches for the server's queries."""
        found = []
        for one in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # the process has exited
                command = (one / "cmdline").read_bytes()
                if (
                    _PLANNER in command
                    and os.getpgid(int(one.name)) == self._process.pid
                ):
                    found.append(int(one.name))
        return found

    def remote(self, session=None):
        """Return the server's address; append the session's id if it is given."""
        more = "" if session is None else f"/;session_id={session}"
        return f"sc://127.0.0.1:{self._port}{more}"

    def session(self, id_=None):
        """Return a client that has our source, in a new session or in the session ``id_``."""
        from pyspark.sql.connect.session import (  # noqa: PLC0415  if installed
            SparkSession,
        )

        made = SparkSession.builder.remote(self.remote(id_)).create()
        self._clients.append(made.client)
        made.dataSource.register(SafeKafkaSource)
        return made

    def log(self):
        return self._log.read_text()[-4000:]

    def _answers(self):
        try:
            socket.create_connection(("127.0.0.1", self._port), 1.0).close()
        except OSError:
            return False
        return True


class KeptQueries:
    """Runs a query for each lake; restarts queries that a busy machine was slow to start."""

    def __init__(self, lakes, **how):
        self._how = how
        self._queries = {lake: lake.start(**how) for lake in lakes}

    def revive(self):
        """Restart the queries that failed to start; return whether all had started."""
        failed = {
            lake: error
            for lake, query in self._queries.items()
            if (error := query.exception()) is not None
        }
        for lake, error in failed.items():
            assert _TOO_LATE in str(error)
            self._queries[lake] = lake.start(**self._how)
        return not failed

    def are_over(self):
        """Return whether all queries have finished without an error; restart failed ones."""
        is_over = not any(query.isActive for query in self._queries.values())
        return self.revive() and is_over
