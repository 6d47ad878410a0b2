"""kafka-python: unsubscribe() in a listener changes half of it, and then raises."""

from typing import Any

from kafka import ConsumerRebalanceListener

from tests.system.upstream.stage import a_topic, stock, until


class Leaving(ConsumerRebalanceListener):  # type: ignore[misc]  # upstream is untyped
    """Leaves as soon as it has got something."""

    consumer: Any = None
    said = ""

    def on_partitions_revoked(self, revoked: Any) -> None:  # noqa: ANN401 - untyped
        pass

    def on_partitions_assigned(self, assigned: Any) -> None:  # noqa: ANN401 - untyped
        if not assigned:
            return
        try:
            self.consumer.unsubscribe()
        except Exception as error:  # noqa: BLE001 - it is the finding
            left = self.consumer.subscription()
            self.said = f"{type(error).__name__} raised, subscription() is {left}"


def shown() -> str | None:
    with a_topic(1) as broker:
        consumer, listener = stock(broker, "billing"), Leaving()
        listener.consumer = consumer
        consumer.subscribe(["orders"], listener=listener)
        until(lambda: listener.said, lambda: consumer.poll(500))
        consumer.close()
    return listener.said or None
