"""Makes records that a deserializer refuses or that have a wrong checksum."""

import pytest
from kafka.errors import CorruptRecordError
from kafka.serializer import Deserializer

from tests.harness.kafka.fetches import batch, corrupted


class PoisonError(Exception):
    """The error with which a deserializer refuses a value."""


class Picky(Deserializer):
    """A deserializer that refuses the value ``refused``, which a test may change."""

    def __init__(self):
        self.refused = b"666"

    def deserialize(self, topic, headers, data):
        del topic, headers
        if data == self.refused:
            raise PoisonError
        return data


KINDS = [
    pytest.param(batch(2, 2, value=b"666"), PoisonError, id="deserializer"),
    pytest.param(corrupted(batch(2, 2)), CorruptRecordError, id="checksum"),
]
