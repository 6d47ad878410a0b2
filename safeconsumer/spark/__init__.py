"""
Provides ``format("safekafka")``: Spark's own Kafka source, steered by holds.

Importing this does not need pyspark; :func:`register` does.
"""

from safeconsumer.spark.controller import Controller
from safeconsumer.spark.provision import builder, jars, packages
from safeconsumer.spark.session import register

__all__ = ["Controller", "builder", "jars", "packages", "register"]
