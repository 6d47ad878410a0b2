"""Imports the shared fixtures that the Spark tests use."""

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
