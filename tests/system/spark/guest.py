"""
``python -m tests.system.spark.guest``: shares the JVM of another Python process.

As in Zeppelin and Livy, the port and the secret of a py4j gateway are in environment
variables that pyspark itself reads. The guest reads each command as a line of JSON, and
prints a line of JSON in response.
"""

import json
import sys

from safeconsumer import spark as safe
from safeconsumer.errors import SparkSetupError


class Guest:
    """A program that uses the host's session, or a new session in the host's JVM."""

    def __init__(self):
        from pyspark import SparkConf, SparkContext  # noqa: PLC0415  if installed
        from pyspark.java_gateway import launch_gateway  # noqa: PLC0415
        from pyspark.sql import SparkSession  # noqa: PLC0415

        gateway = launch_gateway()
        java = gateway.jvm
        shared = java.org.apache.spark.sql.SparkSession.active()
        context = java.org.apache.spark.api.java.JavaSparkContext(shared.sparkContext())
        conf = SparkConf(_jvm=java, _jconf=context.getConf())
        spark = SparkContext(gateway=gateway, jsc=context, conf=conf)
        self.session = SparkSession(spark, shared)
        self.controller = None

    def register(self, *, is_new):
        """Register the host's session or a new session; return why it was refused, or ""."""
        if is_new:
            self.session = self.session.newSession()
        try:
            self.controller = safe.register(self.session, hooks=())
        except SparkSetupError as error:
            return str(error)
        return ""

    def start(self, options, folder):
        """Start a query that writes Parquet; store the session where the host can find it."""
        frame = self.session.readStream.format("safekafka").options(**options).load()
        written = frame.writeStream.format("parquet").options(
            path=f"{folder}/data", checkpointLocation=f"{folder}/checkpoint"
        )
        written.trigger(processingTime="100 milliseconds").start()
        java = self.session._jvm.java
        java.lang.System.getProperties().put("guest", self.session._jsparkSession)
        return ""

    def foreach_batch(self):
        """Make pyspark set the JVM's callback client to this process."""
        rows = self.session.readStream.format("rate").load()
        query = rows.writeStream.foreachBatch(lambda *_: None).start()
        query.processAllAvailable()
        query.stop()
        return ""


def main():
    guest = Guest()
    print("ready", flush=True)  # noqa: T201  an answer
    for line in sys.stdin:
        name, arguments = json.loads(line)
        do = getattr(guest, name)
        print(json.dumps(do(**arguments)), flush=True)  # noqa: T201  an answer


if __name__ == "__main__":
    main()
