"""Provides the network client of this package's own readers and writers."""

from safeconsumer._kafka.fixes.unclosed import ClosingClient

_CONNECT_MS = 3_000


class NoTopicsClient(ClosingClient):
    """
    A network client that really obeys ``allow_auto_create_topics=False``.

    kafka-python 3.0.12 accepts the setting but does not pass it on
    (``KafkaConnectionManager.__init__`` makes its ``ClusterMetadata`` without it), so a
    request for a deleted topic creates the topic again, with the broker's defaults.
    Remove this class when ``tests/broker/group/test_real.py`` passes without it.

    A person may be waiting for the result, so if a broker accepts a connection but does
    not respond, the client turns to another broker after 3 s, not after 10.
    """

    def __init__(self, **configs: object) -> None:
        super().__init__(**configs)
        self.cluster.config["allow_auto_create_topics"] = False
        self._manager.connect_ms = _CONNECT_MS
