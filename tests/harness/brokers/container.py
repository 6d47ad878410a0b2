"""One Apache Kafka broker in a container, by testcontainers."""

import os
import time
from collections.abc import Mapping
from typing import Any, Self

# No reaper: its image would have to be pulled. Our own label-wise clean-up does its
# work. testcontainers reads this when it is imported, which happens below.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")

import docker
from testcontainers.core.container import DockerContainer
from testcontainers.core.labels import LABEL_SESSION_ID, SESSION_ID

from safeconsumer.testing._ports import free_port
from tests.harness.brokers.real import OwnBroker
from tests.harness.brokers.settings import (
    CLUSTER_ID,
    IMAGE,
    START_TIMEOUT,
    STARTED,
    TEST_SETTINGS,
)

_PORT = "9092/tcp"


class _KafkaContainer(DockerContainer):  # type: ignore[misc]  # untyped upstream
    """A container whose address outside stays the same when it is started again."""

    def __init__(self, port: int) -> None:
        super().__init__(IMAGE)
        self.env = _environment(port)
        # with_bind_ports() would open the port on every interface of the machine.
        self.ports = {_PORT: ("127.0.0.1", port)}


class ContainerBroker(OwnBroker):
    """
    Run a broker in a container; a context manager that removes it.

    Raises:
        RuntimeError: on start, if the broker does not come up; its log is in the
            message.

    """

    kind = "docker"

    def __init__(self) -> None:
        port = free_port()
        super().__init__(f"127.0.0.1:{port}")
        self._container = _KafkaContainer(port)
        self._starts = 0

    def __enter__(self) -> Self:
        try:
            self._container.start()
            self._wait_until_up()
        except BaseException:
            remove_left_over()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._container.stop()
        remove_left_over()

    def freeze(self) -> None:
        """Stop every process inside where it is: TCP connects, then nothing answers."""
        self._wrapped.pause()

    def unfreeze(self) -> None:
        """Let a frozen container go on."""
        self._wrapped.unpause()

    def kill(self) -> None:
        """End the broker at once (SIGKILL), as a crash would; the data stays."""
        self._wrapped.kill("KILL")
        self._wrapped.wait(timeout=START_TIMEOUT)

    def restart(self) -> None:
        """Start the same container again: same address, same data."""
        self._wrapped.start()
        self._wait_until_up()

    @property
    def _wrapped(self) -> Any:  # noqa: ANN401  docker's own class, without types
        return self._container.get_wrapped_container()

    def _wait_until_up(self) -> None:
        self._starts += 1
        deadline = time.monotonic() + START_TIMEOUT
        while self._wrapped.logs().count(STARTED.encode()) < self._starts:
            self._wrapped.reload()
            has_ended = self._wrapped.status == "exited"
            if has_ended or time.monotonic() > deadline:
                log = self._wrapped.logs()[-4000:].decode(errors="replace")
                msg = f"the broker in the container did not come up:\n{log}"
                raise RuntimeError(msg)
            time.sleep(0.1)


def remove_left_over() -> None:
    """Remove what this session's testcontainers have left in the engine."""
    client = docker.from_env()
    try:
        label = f"{LABEL_SESSION_ID}={SESSION_ID}"
        for left in client.containers.list(all=True, filters={"label": label}):
            left.remove(force=True, v=True)
    finally:
        client.close()


def _environment(port: int) -> Mapping[str, str]:
    names = ("EXTERNAL", "INTERNAL", "CONTROLLER")
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": "1@localhost:9094",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "INTERNAL",
        "listeners": "EXTERNAL://0.0.0.0:9092,INTERNAL://0.0.0.0:9093,"
        "CONTROLLER://0.0.0.0:9094",
        "advertised.listeners": f"EXTERNAL://127.0.0.1:{port},"
        "INTERNAL://localhost:9093",
        "listener.security.protocol.map": ",".join(f"{n}:PLAINTEXT" for n in names),
        "log.dirs": "/var/lib/kafka/data",
        "heap.opts": "-Xms128m -Xmx384m",
        **TEST_SETTINGS,
    }
    # The image turns KAFKA_A_B=v into a.b=v.
    variables = {
        "KAFKA_" + key.upper().replace(".", "_"): str(value)
        for key, value in settings.items()
    }
    return {"CLUSTER_ID": CLUSTER_ID, **variables}
