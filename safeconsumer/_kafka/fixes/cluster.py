"""Makes upstream's cluster metadata ask again for a topic that an answer left out."""

from typing import Any

from kafka.cluster import ClusterMetadata


class PauseSafeCluster(ClusterMetadata):
    """
    Asks again when an answer belongs to an older question.

    Upstream 3.0.12 takes any answer for the one it waits for. If a topic is subscribed
    while a request is under way, as a new consumer's first one always may be, the topic
    stays unknown until ``metadata_max_age_ms`` (5 minutes): nothing is assigned, and
    the member does not join.

    Thread rules: both methods on the IO thread.
    """

    _asked: frozenset[str] | None = frozenset()

    def metadata_request(self) -> Any:  # noqa: ANN401 - upstream's request
        """Make the next request, and remember which topics it asks for."""
        self._asked = self._wanted()
        return super().metadata_request()

    def update_metadata(self, metadata: object) -> None:
        """Take an answer; ask again if more topics are wanted by now."""
        super().update_metadata(metadata)
        wanted = self._wanted()
        if self._asked is not None and (wanted is None or not wanted <= self._asked):
            self.request_update()

    def _wanted(self) -> frozenset[str] | None:
        # None means every topic.
        return None if self.need_all_topic_metadata else frozenset(self._topics)
