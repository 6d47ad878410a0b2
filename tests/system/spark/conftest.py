"""Fixtures that tests of several folders share."""

from tests.harness.spark.fixtures import (
    controller,
    events,
    lake,
    operator,
    quick,
    registered,
    spark,
)

__all__ = ["controller", "events", "lake", "operator", "quick", "registered", "spark"]
