"""Has upstream's cluster metadata ask again where an answer left something out."""

from collections.abc import Iterable
from typing import Any

from kafka.cluster import ClusterMetadata
from kafka.structs import TopicPartition


class PauseSafeCluster(ClusterMetadata):
    """
    Asks again when an answer belongs to an older question, or lacks a leader.

    Upstream 3.0.12 takes any answer for the one it waits for. If a topic is subscribed
    while a request is under way, as a new consumer's first one always may be, the topic
    stays unknown until ``metadata_max_age_ms`` (5 minutes): nothing is assigned, and
    the member does not join.

    Thread rules: on the IO thread, but for ``leader_for_partition``.
    """

    _asked: frozenset[str] | None = frozenset()
    _answered: frozenset[str] | None = frozenset()

    def metadata_request(self) -> Any:  # noqa: ANN401 - upstream's request
        """Make the next request, and remember which topics it asks for."""
        self._asked = self._wanted()
        return super().metadata_request()

    def update_metadata(self, metadata: object) -> None:
        """Take an answer; ask again if more topics are wanted by now."""
        super().update_metadata(metadata)
        self._answered = self._asked
        wanted = self._wanted()
        if self._asked is not None and (wanted is None or not wanted <= self._asked):
            self.request_update()

    def is_answered(self, topics: Iterable[str]) -> bool:
        """Tell whether the last answer was about these topics: what it lacks is not there."""
        return self._answered is None or self._answered.issuperset(topics)

    def set_topics(self, topics: Iterable[str]) -> Any:  # noqa: ANN401 - upstream's future
        """
        Set what is wanted; ask as well if it was set before, and nothing asked.

        Upstream stores the topics before it asks. A signal handler may raise between
        the two, and the same call again finds them stored.
        """
        done = super().set_topics(topics)
        if not self._topics <= self._partitions.keys():
            return self.request_update()
        return done

    def leader_for_partition(self, partition: TopicPartition) -> int | None:
        """
        Return the id of a partition's leader; None if that broker is not known.

        An answer to a Fetch may name a leader that the metadata does not have yet
        (KIP-951). A request to it would raise out of ``poll``; None has upstream ask
        for metadata.
        """
        leader: int | None = super().leader_for_partition(partition)
        return None if self.broker_metadata(leader) is None else leader

    def _wanted(self) -> frozenset[str] | None:
        # None means every topic.
        return None if self.need_all_topic_metadata else frozenset(self._topics)
