"""Fixtures that tests of several folders share."""

from tests.harness.spark.fixtures import (
    controller,
    lake,
    quick,
    registered,
    spark,
    told,
)

__all__ = ["controller", "lake", "quick", "registered", "spark", "told"]
