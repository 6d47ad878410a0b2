"""
Provides ``format("safekafka")``: Spark's own Kafka source, controlled by holds.

The package also reads delivery journals as DataFrames, which :func:`findings` judges.

Importing this package does not need pyspark; :func:`register` does.
"""

from safeconsumer.spark.auditing import findings
from safeconsumer.spark.controller import Controller
from safeconsumer.spark.folders import refuse_another_checkpoint
from safeconsumer.spark.provision import builder, jars, packages
from safeconsumer.spark.reading import journals
from safeconsumer.spark.session import register
from safeconsumer.spark.views import views

__all__ = [
    "Controller",
    "builder",
    "findings",
    "jars",
    "journals",
    "packages",
    "refuse_another_checkpoint",
    "register",
    "views",
]
