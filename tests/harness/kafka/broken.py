"""Answers that stock cannot read: a record that its deserializer refuses, a bad checksum."""

import pytest
from kafka.errors import CorruptRecordError
from kafka.serializer import Deserializer

from tests.harness.kafka.fetches import batch, corrupted


class PoisonError(Exception):
    """Raised by a deserializer."""


class Picky(Deserializer):  # type: ignore[misc]  # upstream is untyped
    """Refuses one value."""

    def deserialize(self, topic: str, headers: object, data: bytes) -> bytes:
        del topic, headers
        if data == b"poison":
            raise PoisonError
        return data


KINDS = [
    pytest.param(batch(2, 2, value=b"poison"), PoisonError, id="deserializer"),
    pytest.param(corrupted(batch(2, 2)), CorruptRecordError, id="checksum"),
]
