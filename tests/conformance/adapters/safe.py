"""
safeconsumer: kafka-python's calls, and pauses of more than partitions.
"""

import re
from importlib import metadata
from typing import Any

from safeconsumer import SafeConsumer
from tests.conformance.adapters import kafka_python


class Adapter(kafka_python.Adapter):
    """
    One consumer of ours after the other.
    """

    consumer: SafeConsumer

    def versions(self) -> dict[str, str]:
        return {**super().versions(), "safeconsumer": metadata.version("safeconsumer")}

    def make(self, config: dict[str, Any], settings: dict[str, Any]) -> SafeConsumer:
        carries = {"pause_handover": "offsets"} if settings["carries"] else {}
        return SafeConsumer(**config, **carries)

    def pause_topic(self, topic: str) -> None:
        self.consumer.pause(topic)

    def pause_pattern(self, pattern: str) -> None:
        self.consumer.pause(re.compile(pattern))

    def pause_all(self) -> None:
        self.consumer.pause_all()
