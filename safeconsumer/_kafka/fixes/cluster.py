"""Extends upstream's cluster metadata, to repeat the request if a response is incomplete."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import UUID

from kafka.cluster import ClusterMetadata
from kafka.errors import (
    InvalidTopicError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.metadata import MetadataResponse
from kafka.structs import TopicPartition

from safeconsumer._kafka.network import new_future

_UNKNOWN = UnknownTopicOrPartitionError.errno
# Errors that must reach the program; upstream raises them.
_FINAL = {TopicAuthorizationFailedError.errno, InvalidTopicError.errno}


class PauseSafeCluster(ClusterMetadata):
    """
    Requests metadata again if a response is out of date, or lacks a topic or a leader.

    Upstream 3.0.12 accepts any response as the one that it waits for. If a topic is
    subscribed to while a request is in flight, such as the first request of a new
    consumer, the topic stays unknown until ``metadata_max_age_ms`` (5 minutes) has
    passed. Until then no partition of it is assigned, and the member does not join.

    Upstream also forgets a topic if a single response, perhaps from a broker that is
    starting, has an error for the topic or does not list it. The topic's partitions are
    then revoked and assigned again, and their pauses are lost. This class regards a
    topic as deleted only after two consecutive responses without it; other errors do
    not count.

    Thread rules: only the IO thread calls the methods, except that any thread may call
    ``leader_for_partition``.
    """

    _requested_topics: frozenset[str] | None = frozenset()
    _asked_at = -math.inf
    _answered_topics: frozenset[str] | None = frozenset()
    # The topics that were unknown in the last response, but not in the one before.
    _missing_once: frozenset[str] = frozenset()
    # The futures of request_newer() that are not done, each with the time of its call
    # and the time until which its caller waits.
    _awaited: tuple[tuple[float, float, Any], ...] = ()

    version: int = 0
    """
    A counter; while the number stays the same, no leader has changed.
    """

    on_ids: Callable[[Mapping[str, UUID], float], bool] | None = None
    """
    A function that is called after each response with the ids of its topics, and with
    the time of the request, in monotonic seconds; it returns whether to ask again.
    """

    on_answer: Callable[..., object] = staticmethod(lambda **_: None)
    """
    A function that is called after each response is applied; ``is_of_all`` tells whether
    the response has all topics of the cluster.
    """

    def known_id(self, topic: str) -> UUID | None:
        """Return the id of a topic; None if it is unknown, or Kafka is older than 2.8."""
        found: UUID | None = self._topic_ids.get(topic)
        return found if found is not None and found.int else None

    def metadata_request(self) -> Any:  # noqa: ANN401 - upstream's request
        """Create the next request, and remember its topics."""
        self._requested_topics, self._asked_at = self._wanted(), time.monotonic()
        return super().metadata_request()

    def request_newer(self, patience: float) -> Any:  # noqa: ANN401 - upstream's future
        """
        Request metadata; return a future for the response to a request sent after now.

        The future of upstream's ``request_update`` is done with the next response, even
        if that response was written before the call.

        Args:
            patience: the seconds for which the caller waits. A failed request is
                repeated, and lets the future fail only after this time.
        """
        future, now = new_future(self._manager._net), time.monotonic()
        self._awaited += ((now, now + patience, future),)
        self.request_update()
        return future

    def update_metadata(self, metadata: Any) -> None:  # noqa: ANN401 - upstream's
        """Apply a response; send another request if it is incomplete or out of date."""
        ids = _ids(metadata)
        is_kept = bool(metadata.brokers) and self._keep_known(metadata)
        is_older = False
        try:
            super().update_metadata(metadata)
        finally:  # upstream raises if it is not authorized to read a topic
            if self.on_ids is not None:
                is_older = self.on_ids(ids, self._asked_at)
            is_older |= self._end_waits()
        self.version += 1
        self._answered_topics = self._requested_topics
        self.on_answer(is_of_all=self._answered_topics is None)
        wanted = self._wanted()
        asked = self._requested_topics
        is_older |= asked is not None and (wanted is None or not wanted <= asked)
        if is_kept or is_older:
            self.request_update()

    def failed_update(self, exception: Exception) -> None:
        """Record that a request failed, or that its response lists no brokers."""
        super().failed_update(exception)
        awaited, now = self._awaited, time.monotonic()
        self._awaited = tuple(one for one in awaited if one[1] > now)
        for _, until, future in awaited:
            if until <= now:
                future.failure(exception)

    def _end_waits(self) -> bool:
        # Returns whether a wait needs the response to another request.
        awaited, asked_at = self._awaited, self._asked_at
        self._awaited = tuple(one for one in awaited if one[0] > asked_at)
        for since, _, future in awaited:
            if since <= asked_at:
                future.success(self)
        return bool(self._awaited)

    def _keep_known(self, answer: Any) -> bool:  # noqa: ANN401 - upstream's
        # Keeps known topics that the response lacks. Only topics with an id are kept,
        # because without an id a recreated topic would look like the deleted one.
        # Brokers have sent ids since Kafka 2.8.
        answered: dict[str, Any] = {topic.name: topic for topic in answer.topics}
        doubted, self._missing_once = self._missing_once, frozenset()
        kept = []
        for name in self._known_and_asked_for():
            topic = answered.get(name)
            error = _UNKNOWN if topic is None else topic.error_code
            if topic is not None and not error:
                # The response has the topic, perhaps recreated with another id.
                continue
            if error != _UNKNOWN:
                kept += [] if error in _FINAL else [name]
            elif name not in doubted:
                self._missing_once |= {name}
                kept.append(name)
        others = [topic for topic in answer.topics if topic.name not in kept]
        answer.topics = [*others, *(self._known_topic(name, answer) for name in kept)]
        return bool(kept)

    def _known_and_asked_for(self) -> frozenset[str]:
        known = frozenset(self._topics).intersection(self._partitions, self._topic_ids)
        return (
            known if self._requested_topics is None else known & self._requested_topics
        )

    def _known_topic(self, name: str, answer: Any) -> Any:  # noqa: ANN401 - upstream's
        return MetadataResponse.MetadataResponseTopic(
            version=answer.API_VERSION,
            name=name,
            topic_id=self._topic_ids[name],
            is_internal=name in self.internal_topics,
            partitions=[*self._partitions[name].values()],
        )

    def update_partition_leader(
        self, partition: TopicPartition, leader_id: int, leader_epoch: int
    ) -> bool:
        """Apply a leader that the response to a request other than Metadata has reported."""
        is_new: bool = super().update_partition_leader(
            partition, leader_id, leader_epoch
        )
        self.version += is_new
        return is_new

    def is_answered(self, topics: Iterable[str]) -> bool:
        """Return whether the last response covers these topics, even if they do not exist."""
        return self._answered_topics is None or self._answered_topics.issuperset(topics)

    def is_missing(self, topic: str) -> bool:
        """
        Return whether a topic does not exist, according to two consecutive responses.

        For a topic that was unknown before, or known without an id, one response is
        enough.
        """
        return topic not in self._partitions and self.is_answered((topic,))

    def set_topics(self, topics: Iterable[str]) -> Any:  # noqa: ANN401 - upstream's future
        """
        Set the wanted topics; request them even if an interrupted call has set them.

        Upstream stores the topics before it requests them. If a signal handler raises
        in between, a repeated call would find the topics stored and request nothing.
        """
        done = super().set_topics(topics)
        if not self._topics <= self._partitions.keys():
            return self.request_update()
        return done

    def leader_for_partition(self, partition: TopicPartition) -> int | None:
        """
        Return the id of a partition's leader; None if that broker is not known.

        The response to a Fetch may name a leader that the metadata does not have yet
        (KIP-951). A request to that leader would make ``poll`` raise an error; None
        makes upstream request metadata.
        """
        leader: int | None = super().leader_for_partition(partition)
        return None if self.broker_metadata(leader) is None else leader

    def _wanted(self) -> frozenset[str] | None:
        # None means every topic.
        return None if self.need_all_topic_metadata else frozenset(self._topics)


def _ids(answer: Any) -> dict[str, UUID]:  # noqa: ANN401 - upstream's
    # A broker sends no id, or an id of zeros, if its version or its cluster does not
    # support ids.
    return {
        topic.name: topic.topic_id
        for topic in answer.topics
        if not topic.error_code and topic.topic_id is not None and topic.topic_id.int
    }
