"""
Spark's own Kafka source, steered by holds: ``format("safekafka")``.

Importing this needs no pyspark; :func:`register` does.
"""

from safeconsumer.spark.controller import Controller
from safeconsumer.spark.listening import listener
from safeconsumer.spark.provision import builder, jars, packages
from safeconsumer.spark.session import register

__all__ = ["Controller", "builder", "jars", "listener", "packages", "register"]
