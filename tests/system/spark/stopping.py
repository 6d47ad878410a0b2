"""
Stops a Spark session while a stream is idle: ``python -m tests.system.spark.stopping``.

Before the stop, decisions block for several triggers. The program prints the results.
"""

import sys
import threading

from safeconsumer.errors import SparkSetupError
from tests.harness.spark.fixtures import session_with
from tests.harness.spark.lake import progress, until

_TRIGGERS = 20


def main(bootstrap, topic):
    """Run a stream, block it, stop the session, and start another session in the JVM."""
    from safeconsumer import spark as safe  # noqa: PLC0415  only where pyspark is
    from safeconsumer.spark.stream import Stream  # noqa: PLC0415

    spark = session_with(master="local[1]")
    controller = safe.register(spark, hooks=())
    query = start(spark, bootstrap, topic)
    until(lambda: len(query.recentProgress) > 1, query)
    go, real = threading.Event(), Stream.plan
    hanging = lambda self, facts: go.wait(60) and real(self, facts)  # noqa: E731 used once
    Stream.plan = hanging
    until(lambda: hung(query) >= _TRIGGERS, query)
    Stream.plan = real
    go.set()
    until(lambda: "not returned yet" not in str(progress(query)[-1]), query)
    report("streams", len(controller.bridge.streams()))
    stop_in_a_plan(spark, bootstrap, topic)
    spark.stop()
    until(lambda: controller.bridge.streams() == ())
    report("after the stop", len(controller.bridge.streams()))
    try:
        safe.register(spark)
    except SparkSetupError as error:
        report("refused", str(error).partition(":")[0])
    again = session_with(master="local[1]")
    report("another handle", safe.register(again, hooks=()) is not controller)
    start(again, bootstrap, topic).processAllAvailable()
    report("and it runs", found=True)
    stop_under_a_stream(again)


def stop_in_a_plan(spark, bootstrap, topic):
    """Stop a query while Python decides on its next batch."""
    from safeconsumer.spark.stream import Stream  # noqa: PLC0415

    go, asked, real = threading.Event(), set[str](), Stream.plan

    def plan(self, facts):
        asked.add(self.name)
        go.wait(60)
        return real(self, facts)

    query = start(spark, bootstrap, topic)
    until(lambda: len(query.recentProgress) > 1, query)
    Stream.plan = plan
    until(lambda: len(asked) == 2, query)  # one of them is the earlier query
    query.stop()
    Stream.plan = real
    go.set()
    report("stopped in a plan", query.exception())


def stop_under_a_stream(spark):
    """Start a session before an earlier stream is closed, and another session afterwards."""
    from safeconsumer import spark as safe  # noqa: PLC0415  only where pyspark is
    from safeconsumer.spark.bridge import Bridge  # noqa: PLC0415

    controller = safe.register(spark)
    *_, line = controller.on_close.args
    go, real = threading.Event(), Bridge._close
    late = lambda self, facts: go.wait(60) and real(self, facts)  # noqa: E731 used once
    Bridge._close = late
    spark.stop()
    spark = session_with(master="local[1]")
    safe.register(spark, hooks=())
    report("not ended", len(controller.bridge.streams()))
    go.set()
    until(lambda: controller.bridge.streams() == ())
    spark.stop()
    spark = session_with(master="local[1]")
    safe.register(spark, hooks=())
    report("its port is free", line.server.thread is None)
    controller.close()  # a second close has no effect
    spark.stop()


def hung(query):
    """Count the triggers that report that a decision has not returned yet."""
    return sum("not returned yet" in str(one) for one in progress(query))


def start(spark, bootstrap, topic):
    """Start a query that reads a topic and drops the rows."""
    frame = spark.readStream.format("safekafka").option("subscribe", topic)
    frame = frame.option("kafka.bootstrap.servers", bootstrap)
    frame = frame.option("holds.decisionTimeoutMs", "5000")
    written = frame.load().writeStream.format("noop")
    return written.trigger(processingTime="20 milliseconds").start()


def report(what, found):
    print(f"{what}: {found}", flush=True)  # noqa: T201  an answer


if __name__ == "__main__":
    main(*sys.argv[1:])
