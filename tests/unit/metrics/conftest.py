"""Fixtures that tests of several folders share."""

from tests.harness.metrics.fixtures import safe

__all__ = ["safe"]
