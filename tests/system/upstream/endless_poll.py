"""kafka-python: after a deserializer has raised, the next poll never returns."""

import threading
from contextlib import suppress
from typing import Any

from kafka.serializer import Deserializer

from tests.system.upstream.stage import a_topic, stock, tp


class Picky(Deserializer):  # type: ignore[misc]  # upstream is untyped
    """Can make nothing of any record."""

    def deserialize(self, topic: str, headers: Any, data: bytes) -> bytes:  # noqa: ANN401 - untyped
        del headers, data
        raise ValueError(topic)


def shown() -> str | None:
    with a_topic(3) as broker:
        consumer = stock(broker, value_deserializer=Picky())
        consumer.assign([tp()])
        errors = 0
        while not errors:
            try:
                consumer.poll(500)
            except ValueError:
                errors += 1

        def again() -> None:
            with suppress(ValueError):
                consumer.poll(0)

        second = threading.Thread(target=again, daemon=True)
        second.start()
        second.join(5)
        if second.is_alive():
            return "poll(0) raised once; the next poll(0) runs since 5 s"
        consumer.close()
    return None
