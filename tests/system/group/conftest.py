"""Fixtures of tests that start brokers, and of those with commands."""

from tests.harness.group.fixtures import time_to_look

__all__ = ["time_to_look"]
