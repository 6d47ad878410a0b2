"""Opens the broker of a demo: an embedded one, or a cluster that is cleaned up again."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

from safeconsumer._kafka.fixes.unmade import made
from safeconsumer.demo import PREFIX
from safeconsumer.errors import SafeConsumerError
from safeconsumer.testing import EmbeddedBroker
from safeconsumer.testing.existing import ExistingCluster

_REACH_MS = 5000
_STAGE = re.compile(rf"{PREFIX}-[0-9a-f]+-")


class BrokerNotReachableError(SafeConsumerError):
    """No Kafka broker answers at the address; the message names it."""


class TidyCluster(ExistingCluster):
    """A cluster from which the demo's topics and groups are deleted afterwards."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._made: list[str] = []

    def create_topic(
        self, name: str, partitions: int = 4, settings: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic and remember it."""
        self._made.append(name)
        super().create_topic(name, partitions, settings)

    def tidy(self) -> str | None:
        """
        Delete the topics and groups that the demo made.

        Returns:
            A sentence about what is left behind; None if nothing is.
        """
        if not self._made:
            return None
        stages = {match[0] for name in self._made if (match := _STAGE.match(name))}
        try:
            with self.admin() as admin:
                admin.delete_topics(self._made)
                admin.delete_groups([stage + "group" for stage in stages])
        except KafkaError as error:
            return f"{PREFIX}-* may be left at {self.bootstrap}: {error}"
        return None


@contextmanager
def open_broker(bootstrap: str | None) -> Iterator[EmbeddedBroker | TidyCluster]:
    """
    Start the embedded broker, or connect to a cluster; delete what was made there.

    Raises:
        BrokerNotReachableError: nothing answers in 5 s, or it is not Kafka.
    """
    if bootstrap is None:
        with EmbeddedBroker() as broker:
            yield broker
        return
    reach(bootstrap)
    cluster = TidyCluster(bootstrap)
    try:
        yield cluster
    finally:
        left = cluster.tidy()
        if left is not None:
            click.echo(f"safeconsumer: {left}", err=True)


def reach(bootstrap: str, **config: Any) -> None:  # noqa: ANN401 - upstream's keys
    """
    Return once a Kafka broker answered at the address.

    Args:
        bootstrap: addresses separated by commas, as for kafka-python.
        config: further settings of the client.

    Raises:
        BrokerNotReachableError: none answered in 5 s.
    """
    try:
        made(
            KafkaAdminClient,
            bootstrap_servers=bootstrap.split(","),
            bootstrap_timeout_ms=_REACH_MS,
            **config,
        ).close()
    except (KafkaError, OSError, ValueError) as error:
        message = f"no Kafka broker answers at {bootstrap}"
        raise BrokerNotReachableError(message) from error
