"""
Upstream's cluster metadata: a topic that was asked for is asked for.
"""

from typing import Any

from kafka.cluster import ClusterMetadata


class PauseSafeCluster(ClusterMetadata):
    """
    Asks again when the answer that has come was to an older question.

    Upstream 3.0.12 takes any answer for the one it waits for. A topic subscribed while
    a request is under way, as a new consumer's first one always may be, is then unknown
    until ``metadata_max_age_ms`` (5 minutes): nothing is assigned, nothing joins.

    Thread rules: both methods on the IO thread.
    """

    _asked: frozenset[str] | None = frozenset()

    def metadata_request(self) -> Any:  # noqa: ANN401 - upstream's request
        """
        Make the next request, and remember what it asks for.
        """
        self._asked = self._wanted()
        return super().metadata_request()

    def update_metadata(self, metadata: object) -> None:
        """
        Take an answer; ask again if more is wanted by now.
        """
        super().update_metadata(metadata)
        wanted = self._wanted()
        if self._asked is not None and (wanted is None or not wanted <= self._asked):
            self.request_update()

    def _wanted(self) -> frozenset[str] | None:
        # None is every topic.
        return None if self.need_all_topic_metadata else frozenset(self._topics)
