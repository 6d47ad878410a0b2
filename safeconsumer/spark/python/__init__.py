"""
Provides ``format("safekafka")`` in pure Python, for sessions that cannot add jars.

Importing this package does not need pyspark.
"""

from safeconsumer.spark.python.source import SafeKafkaSource

__all__ = ["SafeKafkaSource"]
