"""Runs one Apache Kafka broker as a Java process."""

import os
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from pathlib import Path

from safeconsumer.testing import ExistingCluster
from tests.harness.brokers import jars
from tests.harness.brokers.ports import reserved_port
from tests.harness.brokers.settings import (
    CLUSTER_ID,
    GROUP_CONFIG,
    START_TIMEOUT,
    STARTED,
    TEST_SETTINGS,
)
from tests.harness.waiting import Bound, code_of

_LOGGING = Path(__file__).with_name("log4j2.properties")
# Linux's in-memory file system, which has only 64 MB in a Docker container by default.
_MEMORY = Path("/dev/shm")  # noqa: S108  mkdtemp makes a folder in it
# The folder's name is this prefix and the process id, so that a later process can find
# and delete the folder of a killed process.
_NAME = "safeconsumer-kafka-of-"
_ROOM = 2 << 30  # bytes that must be free in memory
_BATCH = struct.Struct(">qi")  # base offset, and the length of the rest in bytes
# With these options the JVM starts quickly, but runs more slowly later.
_JVM = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class OwnBroker(ExistingCluster):
    """A real broker with test settings that runs only for this test session."""

    @property
    def group_config(self):
        """The settings of a consumer with the short timeouts that this broker allows."""
        return GROUP_CONFIG


class JavaBroker(OwnBroker):
    """Runs a broker; leaving the context manager stops the process and deletes its data."""

    kind = "java"

    def __init__(self):
        self._port = reserved_port()
        super().__init__(f"127.0.0.1:{self._port}")
        self._folder = folder_for_data(_in_memory())
        self._process = None
        self._starts = 0

    def __enter__(self):
        try:
            self._write_properties()
            self._format_storage()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def start(self):
        """Start the process, and wait until the broker's log reports the start."""
        command = ["kafka.Kafka", str(self._properties)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603  our own command line
                tied_to_us(self._java(*command)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C must interrupt only pytest
            )
        self._starts += 1
        self._wait_until_up()

    def kill(self):
        self._signal(signal.SIGKILL)
        code_of(self._running(), START_TIMEOUT)

    def restart(self):
        """Start the broker again at the same address, with its earlier data."""
        self.start()

    def truncate(self, name, partition, offset):
        """
        Delete a partition's batches from ``offset`` onwards, and restart the broker.

        After a crash a broker accepts the log that it finds, and becomes leader with a
        new epoch, so clients see an unclean leader election. ``offset`` must be the
        first offset of a batch.
        """
        self.kill()
        folder = self._folder / "data" / f"{name}-{partition}"
        for index in folder.glob("*index"):
            index.unlink()
        (segment,) = folder.glob("*.log")
        segment.write_bytes(_batches_below(offset, segment.read_bytes()))
        self.restart()

    def freeze(self):
        self._signal(signal.SIGSTOP)

    def unfreeze(self):
        self._signal(signal.SIGCONT)

    def close(self):
        """Kill the process and delete its data; a second call does nothing."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            code_of(self._process, START_TIMEOUT)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _log(self):
        return self._folder / "log"

    @property
    def _properties(self):
        return self._folder / "server.properties"

    def _running(self):
        if self._process is None:
            msg = "the Java broker has not been started"
            raise RuntimeError(msg)
        return self._process

    def _signal(self, number):
        self._running().send_signal(number)

    def _java(self, *arguments):
        java = shutil.which("java")
        if java is None:
            msg = "no java in PATH"
            raise RuntimeError(msg)
        logging = f"-Dlog4j2.configurationFile={_LOGGING}"
        path = str(jars.fetch() / "*")
        return [java, *_JVM, logging, "-cp", path, *arguments]

    def _write_properties(self):
        controller = f"127.0.0.1:{reserved_port()}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self._folder / "data",
            **TEST_SETTINGS,
        }
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        self._properties.write_text(text)

    def _format_storage(self):
        tool = ("kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID)
        command = self._java(*tool, "--config", str(self._properties))
        failure = "Kafka's storage could not be formatted"
        jars.must_run(command, failure, START_TIMEOUT)

    def _wait_until_up(self):
        bound = Bound(START_TIMEOUT)
        while self._log.read_text(errors="replace").count(STARTED) < self._starts:
            if self._running().poll() is not None or bound.is_over():
                text = self._log.read_text(errors="replace")[-4000:]
                msg = f"the Java broker did not come up:\n{text}"
                raise RuntimeError(msg)
            time.sleep(0.05)


def _batches_below(offset, data):
    """Return the segment's batches below ``offset``."""
    place = 0
    while place < len(data):
        base, length = _BATCH.unpack_from(data, place)
        if base >= offset:
            break
        place += _BATCH.size + length
    return data[:place]


def _in_memory():
    # A broker's controller calls fsync at each change, and a busy disk once delayed
    # such a call by a minute. A test writes some 10 MB.
    try:
        has_room = shutil.disk_usage(_MEMORY).free >= _ROOM
    except OSError:
        return None
    return _MEMORY if has_room and os.access(_MEMORY, os.W_OK | os.X_OK) else None


def folder_for_data(parent):
    """Create a folder named after this process; remove the folders of dead processes."""
    folder = Path(tempfile.mkdtemp(prefix=f"{_NAME}{os.getpid()}-", dir=parent))
    for other in folder.parent.glob(f"{_NAME}*"):
        try:
            os.kill(int(other.name.removeprefix(_NAME).partition("-")[0]), 0)
        except ProcessLookupError:
            shutil.rmtree(other, ignore_errors=True)
        except PermissionError:
            pass  # another user's process is still alive
    return folder


def tied_to_us(command):
    """Return a command whose process Linux kills when this process dies."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", *command] if setpriv else command
