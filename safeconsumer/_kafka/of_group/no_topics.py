"""Provides the network client for this package's own readers and writers."""

from safeconsumer._kafka.fixes.unclosed import ClosingClient

_CONNECT_MS = 3_000


class NoTopicsClient(ClosingClient):
    """
    A network client that really honors ``allow_auto_create_topics=False``.

    kafka-python 3.0.12 accepts the setting but does not pass it on
    (``KafkaConnectionManager.__init__`` creates its ``ClusterMetadata`` without it), so
    a request for a deleted topic creates the topic again, with the broker's defaults.
    Remove this class when ``tests/broker/group/test_real.py`` passes without it.

    A person may be waiting for the result. Therefore the client tries another broker
    after 3 s, not after 10, if a broker accepts a connection but does not respond.
    """

    def __init__(self, **configs: object) -> None:
        super().__init__(**configs)
        self.cluster.config["allow_auto_create_topics"] = False
        self._manager.connect_ms = _CONNECT_MS
