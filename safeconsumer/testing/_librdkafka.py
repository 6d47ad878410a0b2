"""Calls librdkafka's mock cluster by ctypes, in confluent-kafka's own library file."""

import ctypes
import ctypes.util
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from safeconsumer.testing.errors import (
    BrokerCommandError,
    EmbeddedBrokerUnavailableError,
)

_PRODUCER = 0
_POINTER = ctypes.c_void_p
_TEXT = ctypes.c_char_p
_INT = ctypes.c_int
# Seconds; a command takes 0.0001, and one that takes longer than this was missed.
_NUDGE_AFTER = 0.005

# name -> (result, arguments); from rdkafka.h and rdkafka_mock.h of librdkafka 2.10.
# rd_kafka_mock_broker_set_host_port is the newest of them: confluent-kafka 2.10.
_FUNCTIONS: dict[str, tuple[type | None, tuple[type, ...]]] = {
    "rd_kafka_version_str": (_TEXT, ()),
    "rd_kafka_conf_new": (_POINTER, ()),
    "rd_kafka_conf_set": (_INT, (_POINTER, _TEXT, _TEXT, _TEXT, ctypes.c_size_t)),
    "rd_kafka_new": (_POINTER, (_INT, _POINTER, _TEXT, ctypes.c_size_t)),
    "rd_kafka_destroy": (None, (_POINTER,)),
    "rd_kafka_err2name": (_TEXT, (_INT,)),
    "rd_kafka_mock_cluster_new": (_POINTER, (_POINTER, _INT)),
    "rd_kafka_mock_cluster_destroy": (None, (_POINTER,)),
    "rd_kafka_mock_cluster_bootstraps": (_TEXT, (_POINTER,)),
    "rd_kafka_mock_broker_set_host_port": (
        None,
        (_POINTER, ctypes.c_int32, _TEXT, _INT),
    ),
    "rd_kafka_mock_broker_set_rtt": (_INT, (_POINTER, ctypes.c_int32, _INT)),
    "rd_kafka_mock_topic_create": (_INT, (_POINTER, _TEXT, _INT, _INT)),
    "rd_kafka_mock_partition_set_leader": (
        _INT,
        (_POINTER, _TEXT, ctypes.c_int32, ctypes.c_int32),
    ),
    "rd_kafka_mock_coordinator_set": (
        _INT,
        (_POINTER, _TEXT, _TEXT, ctypes.c_int32),
    ),
    "rd_kafka_mock_set_apiversion": (
        _INT,
        (_POINTER, ctypes.c_int16, ctypes.c_int16, ctypes.c_int16),
    ),
    "rd_kafka_mock_push_request_errors_array": (
        None,
        (_POINTER, ctypes.c_int16, ctypes.c_size_t, ctypes.POINTER(_INT)),
    ),
    "rd_kafka_mock_clear_request_errors": (None, (_POINTER, ctypes.c_int16)),
}


def library_path() -> str:
    """
    Return the file of librdkafka that confluent-kafka brought along.

    Raises:
        EmbeddedBrokerUnavailableError: confluent-kafka is missing, or was built
            without its own librdkafka and the system has none either.

    """
    # Looked up, not imported: that would load all of confluent-kafka for one file.
    spec = find_spec("confluent_kafka")
    if spec is None or spec.origin is None:
        why = "confluent-kafka is not installed"
        raise EmbeddedBrokerUnavailableError(why)
    package = Path(spec.origin).parent
    for folder in (package.with_name("confluent_kafka.libs"), package / ".dylibs"):
        for file in sorted(folder.glob("librdkafka*")):
            return str(file)
    found = ctypes.util.find_library("rdkafka")
    if found is None:
        why = f"no librdkafka beside {package}"
        raise EmbeddedBrokerUnavailableError(why)
    return found


def load() -> ctypes.CDLL:
    """
    Load the library and declare the types of every function used here.

    Raises:
        EmbeddedBrokerUnavailableError: as above, or a function is not exported.

    """
    path = library_path()
    try:
        library = ctypes.CDLL(path)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        why = f"confluent-kafka >= 2.10 is needed ({error})"
        raise EmbeddedBrokerUnavailableError(why) from error
    return library


@contextmanager
def _signals_elsewhere() -> Iterator[None]:
    """
    Start threads inside without any signals.

    librdkafka (2.16) lets the mock's thread have those of its caller. The kernel gives
    it one when the main thread has one already; its wait then fails with EINTR, the
    thread ends and frees the cluster, and the next command reads what was freed.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class MockCluster:
    """One mock cluster in this process; every method may be called by any thread."""

    def __init__(self, brokers: int) -> None:
        self._library = load()
        error = ctypes.create_string_buffer(256)
        conf = self._library.rd_kafka_conf_new()
        # Its client half is never used and would complain about that on stderr.
        self._library.rd_kafka_conf_set(conf, b"log_level", b"0", error, 256)
        self._handle = self._library.rd_kafka_new(_PRODUCER, conf, error, 256)
        if not self._handle:
            raise EmbeddedBrokerUnavailableError(error.value.decode())
        with _signals_elsewhere():
            self._cluster = self._library.rd_kafka_mock_cluster_new(
                self._handle, brokers
            )
        if not self._cluster:
            self._library.rd_kafka_destroy(self._handle)
            why = f"librdkafka refused a cluster of {brokers} brokers"
            raise EmbeddedBrokerUnavailableError(why)

    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each broker, in the order of their numbers from 1."""
        text = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        pairs = (address.rsplit(":", 1) for address in text.split(","))
        return [(host, int(port)) for host, port in pairs]

    def advertise(self, broker_id: int, host: str, port: int) -> None:
        """Make the cluster tell clients this address of a broker."""
        self._library.rd_kafka_mock_broker_set_host_port(
            self._cluster, broker_id, host.encode(), port
        )

    def create_topic(self, name: str, partitions: int, replicas: int) -> None:
        self._do("topic_create", name.encode(), partitions, replicas)

    def set_leader(self, topic: str, partition: int, broker_id: int) -> None:
        self._do("partition_set_leader", topic.encode(), partition, broker_id)

    def set_coordinator(self, group: str, broker_id: int) -> None:
        self._do("coordinator_set", b"group", group.encode(), broker_id)

    def set_rtt(self, broker_id: int, milliseconds: int) -> None:
        self._do("broker_set_rtt", broker_id, milliseconds)

    def limit_api(self, api_key: int, newest: int) -> None:
        self._do("set_apiversion", api_key, 0, newest)

    def push_errors(self, api_key: int, codes: Sequence[int]) -> None:
        """Let the next requests of this API be answered with these codes, in order."""
        array = (_INT * len(codes))(*codes)
        self._library.rd_kafka_mock_push_request_errors_array(
            self._cluster, api_key, len(codes), array
        )

    def clear_errors(self, api_key: int) -> None:
        self._library.rd_kafka_mock_clear_request_errors(self._cluster, api_key)

    def close(self) -> None:
        """Stop the cluster and free it; a second call does nothing."""
        if self._cluster:
            with self._nudged():
                self._library.rd_kafka_mock_cluster_destroy(self._cluster)
            self._cluster = None
            self._library.rd_kafka_destroy(self._handle)

    def _do(self, command: str, *arguments: bytes | int) -> None:
        if not self._cluster:
            msg = f"{command}: the embedded broker is stopped"
            raise BrokerCommandError(msg)
        function = getattr(self._library, f"rd_kafka_mock_{command}")
        with self._nudged():
            code = function(self._cluster, *arguments)
        if code:
            name = self._library.rd_kafka_err2name(code).decode()
            msg = f"{command}{arguments}: {name}"
            raise BrokerCommandError(msg)

    @contextmanager
    def _nudged(self) -> Iterator[None]:
        """
        Wake the mock's thread if it overlooks the command given inside.

        librdkafka 2.10 to 2.16 lose the wake-up of a command that comes while the
        one before is being taken up; the thread then sleeps on for up to a second,
        in every fifth start. Any connection wakes it.
        """
        address = self.addresses()[0]

        def nudge() -> None:
            with suppress(OSError), socket.create_connection(address, timeout=1):
                pass

        timer = threading.Timer(_NUDGE_AFTER, nudge)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
