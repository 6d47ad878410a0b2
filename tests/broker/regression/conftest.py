"""Fixtures of the regression suite."""

import pytest

from tests.harness.regression.fixtures import (
    lab,
    regression_producer,
    regression_topics,
)

__all__ = ["client", "lab", "regression_producer", "regression_topics"]


@pytest.fixture
def client() -> str:
    """Ours; ``tests/system/test_workarounds.py`` plays some tests with kafka-python's."""
    return "safe"
