"""The network client of this package's own readers and writers."""

from safeconsumer._kafka.fixes.unclosed import ClosingClient

_CONNECT_MS = 3_000


class NoTopicsClient(ClosingClient):
    """
    A network client that really obeys ``allow_auto_create_topics=False``.

    kafka-python 3.0.12 takes the setting and does not hand it on
    (``KafkaConnectionManager.__init__`` makes its ``ClusterMetadata`` without it), so
    asking for a topic that was deleted creates it again, with the broker's defaults.
    Remove this when ``tests/broker/group/test_real.py`` passes without it.

    A person may wait for it: a broker that takes a connection and does not answer has 3 s,
    not 10, before another is asked.
    """

    def __init__(self, **configs: object) -> None:
        super().__init__(**configs)
        self.cluster.config["allow_auto_create_topics"] = False
        self._manager.connect_ms = _CONNECT_MS
