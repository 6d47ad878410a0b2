"""Runs the demo on the user's cluster, and removes the demo's topics and groups."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import kafka.errors as kafka_errors
from kafka.admin import KafkaAdminClient

from safeconsumer._kafka.fixes.construction import constructed
from safeconsumer.demo.stage import GROUP, RUN, TOPIC
from safeconsumer.testing.existing import ExistingCluster

# The maximum wait for a broker, in milliseconds.
_BOOTSTRAP_MS = 4000
# The maximum seconds for removing groups. A killed member stays in its group for the
# session timeout of 6 s.
_REMOVAL_SECONDS = 20.0
_GONE = {"OK", "GroupIdNotFoundError"}


class UsersCluster(ExistingCluster):
    """
    The user's cluster, which must be accessible without authentication or TLS.

    :meth:`tidy` removes the topics and groups that the demo created.
    """

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._topics: list[str] = []

    def check(self) -> None:
        """
        Check that the demo is allowed to create topics, without creating one.

        Raises:
            KafkaTimeoutError: no broker answers within 4 s.
            KafkaError: the demo is not allowed to create topics; the error's class
                gives the reason.
        """
        topic = {RUN: {"num_partitions": 1, "replication_factor": -1}}
        with self.admin() as admin:
            admin.create_topics(topic, validate_only=True)

    @contextmanager
    def admin(self) -> Iterator[KafkaAdminClient]:
        """Provide an admin client; raise an error if no broker answers within 4 s."""
        patience = {"bootstrap_timeout_ms": _BOOTSTRAP_MS}
        client = constructed(KafkaAdminClient, **self.client_config, **patience)
        try:
            yield client
        finally:
            client.close()

    def create_topic(
        self, name: str, partitions: int = 4, settings: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic, and remember the topic even if the broker does not answer."""
        self._topics.append(name)
        super().create_topic(name, partitions, settings)

    def tidy(self) -> str:
        """
        Remove the topics and groups that the demo created.

        Returns:
            A sentence about the removal that names the topics and groups that are left.
        """
        groups = [
            one.removesuffix(TOPIC) + GROUP
            for one in self._topics
            if one.endswith(TOPIC)
        ]
        try:
            with self.admin() as admin:
                left = [*self._without_topics(admin), *_without_groups(admin, groups)]
        except kafka_errors.KafkaError as error:
            return f"topics and groups named {RUN}-* may be left: {error}"
        if left:
            return f"left at {self.bootstrap}, remove them: {', '.join(left)}"
        return f"topics and groups named {RUN}-* are removed again"

    def _without_topics(self, admin: Any) -> list[str]:  # noqa: ANN401 - kafka-python's
        left = []
        for one in self._topics:
            try:
                admin.delete_topics([one])
            except kafka_errors.UnknownTopicOrPartitionError:
                continue  # the topic was never created
            except kafka_errors.KafkaError as error:
                left.append(f"{one} ({type(error).__name__})")
        return left


def _without_groups(admin: Any, groups: list[str]) -> list[str]:  # noqa: ANN401 - kafka-python's
    """Delete groups; return the groups that still have members or could not be deleted."""
    deadline = time.monotonic() + _REMOVAL_SECONDS
    left = dict.fromkeys(groups, "")
    while left:
        answers = admin.delete_groups([*left])
        left = {one: answers[one] for one in left if answers[one] not in _GONE}
        if "NonEmptyGroupError" not in left.values() or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    return [f"{one} ({why})" for one, why in left.items()]
