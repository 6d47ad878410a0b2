"""Tests the Python source's options; an error names the option that is refused."""

import pytest

from safeconsumer.errors import SparkSettingError
from safeconsumer.spark.python import settings

LEAST = {"kafka.bootstrap.servers": "b:9092", "subscribe": "orders"}


def test_option_names_are_not_case_sensitive():
    found = settings.parse(
        {
            "KAFKA.bootstrap.servers": "b:9092",
            "subscribePattern": "ord.*",
            "failOnDataLoss": "FALSE",
            "includeHeaders": "True",
        }
    )
    assert (found.topics_option, found.wanted) == ("subscribepattern", "ord.*")
    assert not found.holds.fails_on_loss
    assert found.has_headers


def test_options_of_the_python_source_have_defaults():
    found = settings.parse(LEAST)
    assert found.starting == "latest"
    assert (found.max_offsets, found.min_ranges, found.min_records) == (None, 0, 0)
    assert found.patience == 120.0
    assert found.connection == {"bootstrap_servers": "b:9092"}


def test_starting_offsets_are_named_by_partition():
    found = settings.parse(
        {**LEAST, "startingOffsets": '{"orders":{"0":23,"1":-2},"returns":{"0":-1}}'}
    )
    assert found.starting == {
        ("orders", 0): 23,
        ("orders", 1): settings.EARLIEST,
        ("returns", 0): settings.LATEST,
    }


def test_topic_named_twice_is_read_once():
    found = settings.parse({**LEAST, "subscribe": "orders, returns,orders"})
    assert found.wanted == ("orders", "returns")


def test_java_properties_for_reading_and_connecting_are_translated():
    found = settings.parse(
        {
            **LEAST,
            "kafka.isolation.level": "read_committed",
            "kafka.check.crcs": "false",
            "kafka.fetch.max.wait.ms": "100",
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": "/ca.pem",
        }
    )
    assert found.fetching["isolation_level"] == "read_committed"
    assert found.fetching["check_crcs"] is False
    assert found.fetching["fetch_max_wait_ms"] == 100
    assert found.connection["ssl_cafile"] == "/ca.pem"
    assert "ca.pem" not in repr(found)


def test_control_topics_of_the_python_source_may_be_on_another_cluster():
    found = settings.parse({**LEAST, "holds.control.kafka.bootstrap.servers": "c:9092"})
    assert found.holds.control_client["bootstrap.servers"] == "c:9092"
    assert found.connection["bootstrap_servers"] == "b:9092"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"maxRecordsPerPartition": "5"}, "maxrecordsperpartition"),
        ({"minOffsetsPerTrigger": "5"}, "minoffsetspertrigger"),
        ({"startingTimestamp": "5"}, "startingtimestamp"),
        ({"startingOffsetsByTimestamp": "{}"}, "startingoffsetsbytimestamp"),
        ({"endingOffsets": "latest"}, "endingoffsets"),
        ({"commitGroup": "g-progress"}, "commitgroup"),
        ({"holds.contrl": "g"}, "holds.contrl"),
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is missing"),
        ({"assign": '{"orders":[0]}'}, "subscribe and assign"),
        ({"kafka.auto.offset.reset": "earliest"}, "auto.offset.reset"),
        ({"kafka.enable.auto.commit": "true"}, "enable.auto.commit"),
        ({"kafka.group.id": "g"}, "group.id"),
        ({"kafka.interceptor.classes": "X"}, "interceptor.classes"),
        ({"kafka.key.deserializer": "X"}, "key.deserializer"),
        ({"kafka.value.deserializer": "X"}, "value.deserializer"),
        ({"kafka.no.such.thing": "X"}, "kafka.no.such.thing"),
        ({"kafka.ssl.truststore.type": "JKS"}, "ssl.truststore.type"),
        ({"kafka.ssl.truststore.location": "a.jks"}, "convert it to PEM"),
        ({"kafka.isolation.level": "read"}, "isolation.level"),
        ({"kafka.max.poll.records": "0"}, "max.poll.records"),
        ({"kafkaConsumer.pollTimeoutMs": "inf"}, "pollTimeoutMs"),
        ({"kafkaConsumer.pollTimeoutMs": "nan"}, "pollTimeoutMs"),
        ({"kafkaConsumer.pollTimeoutMs": "0"}, "pollTimeoutMs"),
        ({"maxOffsetsPerTrigger": "1e3"}, "maxOffsetsPerTrigger"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger"),
        ({"minPartitions": "-1"}, "minPartitions"),
        ({"minRecordsPerTask": "x"}, "minRecordsPerTask"),
        ({"includeHeaders": "yes"}, "includeHeaders"),
        ({"subscribe": "a,,b"}, "subscribe takes topics"),
        ({"startingOffsets": "first"}, "startingOffsets is not JSON"),
        ({"startingOffsets": "{}"}, "startingOffsets is not JSON"),
        ({"startingOffsets": '{"a":3}'}, "startingOffsets names each"),
        ({"startingOffsets": '{"a":{"0":-3}}'}, "startingOffsets names each"),
        ({"startingOffsets": '{"a":{"0":true}}'}, "startingOffsets names each"),
        ({"startingOffsets": '{"a":{"0":1.5}}'}, "startingOffsets names each"),
        ({"startingOffsets": '{"a":{"-1":1}}'}, "startingOffsets names each"),
        ({"startingOffsets": '{"a":{"0":1,"00":2}}'}, "startingOffsets names each"),
    ],
    ids=str,
)
def test_unsupported_option_is_refused_by_name(given, named):
    with pytest.raises(SparkSettingError) as caught:
        settings.parse({**LEAST, **given})
    assert named in str(caught.value)


@pytest.mark.parametrize(
    "pattern", ["ord(", "[a-z&&[^b]]", "[a[bc]]", r"\p{Alpha}+", r"\Qorders\E"]
)
def test_pattern_with_a_different_meaning_in_python_and_java_is_refused(pattern):
    given = {"kafka.bootstrap.servers": "b:9092", "subscribePattern": pattern}
    with pytest.raises(SparkSettingError, match="subscribePattern"):
        settings.parse(given)


@pytest.mark.parametrize(
    "text", ['{"a":0}', '{"a":["0"]}', '{"a":[-1]}', "[]", "orders"]
)
def test_assign_option_that_does_not_list_partition_numbers_is_refused(text):
    given = {"kafka.bootstrap.servers": "b:9092", "assign": text}
    with pytest.raises(SparkSettingError, match="assign"):
        settings.parse(given)
