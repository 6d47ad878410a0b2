"""Connects the test kit to an existing Kafka cluster."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from safeconsumer.testing.errors import BrokerTypeError

if TYPE_CHECKING:
    from kafka.admin import KafkaAdminClient

# Kafka's default for group.min.session.timeout.ms.
_SESSION_MS = 6000
# Seconds within which the controller's changes must appear in a broker's metadata.
_METADATA_TIMEOUT = 30.0
_OF_A_BROKER = {"client_config", "group_config", "create_topic"}


class ExistingCluster:
    """
    A running cluster at a known address; this class neither starts nor stops it.

    Args:
        bootstrap: one or more ``host:port`` addresses, separated by commas.
    """

    kind = "bootstrap"
    is_real = True

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @property
    def client_config(self) -> dict[str, Any]:
        """The settings with which any kafka-python client can connect to this cluster."""
        return {"bootstrap_servers": self.bootstrap.split(",")}

    @property
    def group_config(self) -> Mapping[str, Any]:
        """The shortest group timeouts that a cluster accepts by default."""
        return {"session_timeout_ms": _SESSION_MS, "heartbeat_interval_ms": 200}

    def create_topic(
        self, name: str, partitions: int = 4, settings: Mapping[str, str] | None = None
    ) -> None:
        """
        Create a topic with the cluster's default replication factor.

        The call returns once every partition has a leader. A broker may still report a
        deleted topic with the same name for a while, so the new topic is identified by
        its id.
        """
        wanted = {
            name: {
                "num_partitions": partitions,
                "replication_factor": -1,
                "configs": settings or {},
            }
        }
        with self.admin() as admin:
            (made,) = admin.create_topics(wanted)["topics"]
            _wait_until(
                lambda: _is_led(admin.describe_topics([name])[0], made.get("topic_id")),
                f"{name} has no leader yet",
            )

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records."""
        with self.admin() as admin:
            admin.delete_topics([name])

    def add_partitions(self, name: str, total: int) -> None:
        """Increase a topic's partitions to ``total``; wait until a broker reports them."""
        with self.admin() as admin:
            admin.create_partitions({name: total})
            _wait_until(
                lambda: len(admin.describe_topics([name])[0]["partitions"]) >= total,
                f"{name} has no {total} partitions yet",
            )

    @contextmanager
    def admin(self) -> Iterator["KafkaAdminClient"]:
        """Provide an admin client, and close it afterwards."""
        from kafka.admin import KafkaAdminClient  # noqa: PLC0415  0.2 s, when needed

        from safeconsumer._kafka.fixes.construction import constructed  # noqa: PLC0415  likewise

        client = constructed(KafkaAdminClient, **self.client_config)
        try:
            yield client
        finally:
            client.close()


def broker_of(given: Any) -> Any:  # noqa: ANN401  see below
    """
    Return a broker object that the test kit can use.

    For an address, or an object that has an address, the result is an
    :class:`ExistingCluster`. Any other broker object is returned as is.

    Args:
        given: an address ``"host:port"``; an object with an address in ``bootstrap``,
            or from ``get_bootstrap_server()``, such as a ``KafkaContainer`` of
            testcontainers; or an object with ``client_config``, ``group_config`` and
            ``create_topic()``.

    Raises:
        BrokerTypeError: the object is of an unknown kind; the message lists the known
            kinds.
    """
    if set(dir(given)) >= _OF_A_BROKER:  # hasattr() would look up the address
        return given
    if callable(asked := getattr(given, "get_bootstrap_server", None)):
        where = asked()
    else:
        where = getattr(given, "bootstrap", given)
    if not (isinstance(where, str) and all(map(_is_address, where.split(",")))):
        raise BrokerTypeError(given)
    return ExistingCluster(where)


def _is_led(topic: Mapping[str, Any], topic_id: str | None) -> bool:
    leaders = [one["leader_id"] for one in topic["partitions"] if not one["error_code"]]
    return (
        not topic["error_code"]
        and topic.get("topic_id") == topic_id
        and len(leaders) == len(topic["partitions"]) > 0
        and min(leaders) >= 0
    )


def _wait_until(condition: Callable[[], bool], otherwise: str) -> None:
    from kafka.errors import KafkaTimeoutError  # noqa: PLC0415  0.2 s, when needed

    deadline = time.monotonic() + _METADATA_TIMEOUT
    while not condition():
        if time.monotonic() > deadline:
            raise KafkaTimeoutError(otherwise)
        time.sleep(0.05)


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdecimal()
