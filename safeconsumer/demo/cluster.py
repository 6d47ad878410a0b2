"""Plays on somebody's cluster, and leaves it as it was found."""

import re
from collections.abc import Mapping

from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

from safeconsumer._kafka.fixes.unmade import made
from safeconsumer.demo.stage import PREFIX
from safeconsumer.testing.existing import ExistingCluster

_REACH_MS = 5000
_STAGE = re.compile(rf"{PREFIX}-[0-9a-f]+-")


class TidyCluster(ExistingCluster):
    """A cluster from which the demo's topics and groups are deleted afterwards."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._made: list[str] = []

    def is_there(self) -> bool:
        """Whether a Kafka broker answers within 5 s."""
        patience = {"bootstrap_timeout_ms": _REACH_MS}
        try:
            made(KafkaAdminClient, **self.client_config, **patience).close()
        except (KafkaError, OSError, ValueError):
            return False
        return True

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
