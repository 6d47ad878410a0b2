"""The kit's broker answers single requests as Apache Kafka does."""

import pytest

from tests.harness.testing.asking import cluster_of
from tests.harness.testing.requests import QUESTIONS, in_kit


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda one: one.__name__)
def test_it_answers_as_kafka_does(question):
    """tests/broker/parity/test_requests.py asks Kafka the same."""
    assert question(in_kit(*cluster_of())) == QUESTIONS[question]
