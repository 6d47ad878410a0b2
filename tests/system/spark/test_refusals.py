"""What cannot be done is refused by name, with what to do instead."""

import pytest

from safeconsumer import spark as safe

pytestmark = [pytest.mark.spark, pytest.mark.real_broker, pytest.mark.timeout(400)]


def test_what_is_refused_in_words(lake, controller):
    batch = lake.spark.read.format("safekafka").option("subscribe", lake.orders)
    batch = batch.option("kafka.bootstrap.servers", lake.broker.bootstrap)
    with pytest.raises(Exception, match=r'read batches with format\("kafka"\)'):
        batch.load().count()
    frame = lake.stream({}).select("value")
    query = frame.writeStream.format("noop").trigger(continuous="1 second")
    query = query.option("checkpointLocation", str(lake.checkpoint))
    with pytest.raises(Exception, match="no continuous mode"):
        query.start().awaitTermination(60)
    with pytest.raises(Exception, match=r"no option holds\.file"):
        lake.stream({"holds.file": "file:///lake/holds.json"})
    options = {"kafka.sasl.jaas.config": "password='hunter2'", "holds": "a b:c"}
    with pytest.raises(Exception, match="option holds") as caught:
        lake.stream(options)
    assert "hunter2" not in str(caught.value)
    frame = lake.spark.readStream.format("safekafka").option("subscribe", "x")
    query = frame.load().writeStream.format("noop").start()
    with pytest.raises(Exception, match=r"kafka\.bootstrap\.servers"):
        query.awaitTermination(60)  # in the official source's own words
    assert controller.bridge.streams() == ()
    assert safe.register(lake.spark) is controller


@pytest.mark.parametrize("mode", ["error", "append", "overwrite", "ignore"])
def test_writing_is_refused_in_words(lake, controller, mode):
    frame = lake.spark.range(1).selectExpr("cast(id as string) as value")
    writer = frame.write.format("safekafka").option("topic", lake.orders)
    writer = writer.option("kafka.bootstrap.servers", lake.broker.bootstrap)
    said = r'safekafka only reads; write with format\("kafka"\)'
    with pytest.raises(Exception, match=said) as caught:
        writer.mode(mode).save()
    assert type(caught.value).__name__ == "UnsupportedOperationException"
    assert controller.bridge.streams() == ()
