"""A Spark Connect server without any jar, as a process that can be killed."""

import os
import signal
import socket
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from safeconsumer.spark.python import SafeKafkaSource
from tests.harness.processes import ROOT, logged
from tests.harness.spark.fixtures import SETTINGS
from tests.harness.waiting import looks

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_LIMIT = 120.0


class ConnectServer:
    """
    Runs a server, of which :meth:`session` is a client.

    A context manager: it ends the server.
    """

    def __init__(self, folder, **settings):
        import pyspark  # noqa: PLC0415  only where it is installed

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
        # One whose server is gone would try again for minutes while Python ends.
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
        for _ in looks(self._answers, "a Connect server", _LIMIT, seen=self.log):
            assert self._process.poll() is None, self.log()
            time.sleep(0.05)

    def kill(self):
        """Kill the server, and the Python processes that it started, at once."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._running.close()
        self._close_clients()

    def session(self):
        """Return a client's new session, in which the source is registered."""
        from pyspark.sql.connect.session import (  # noqa: PLC0415  if installed
            SparkSession,
        )

        made = SparkSession.builder.remote(f"sc://127.0.0.1:{self._port}").create()
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
