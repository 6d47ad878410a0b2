"""Tests the source's options; an error names the option that is refused."""

import pytest

from safeconsumer.errors import SparkSettingError
from safeconsumer.group.settings import HOLDS_TOPIC, STATUS_TOPIC
from safeconsumer.spark import options
from tests.harness.listing import short


def test_option_names_are_not_case_sensitive():
    """Spark passes option names as they were typed."""
    parsed = options.parse({"Holds": "orders:3 re:tmp.*", "FailOnDataLoss": "FALSE"})
    assert list(map(str, parsed.scopes)) == ["orders:3", "re:tmp.*"]
    assert not parsed.fails_on_loss


def test_ranges_are_read_as_on_the_command_line():
    parsed = options.parse({"holds": "orders:0-2,5 returns"})
    shown = " ".join(map(str, parsed.scopes))
    assert shown == "orders:0 orders:1 orders:2 orders:5 returns"


FOLLOWING = {"holds.control": "true", "holds.group": "g"}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"holds": "orders::"}, "holds: "),
        ({"holds": "re:("}, "holds: "),
        ({"holds.contrl": "true"}, "holds.contrl"),
        ({"hold": "orders"}, "no option hold; "),
        ({"hold.group": "g"}, "hold.group"),
        ({"holdsGroup": "g"}, "holdsGroup"),
        ({"holds_group": "g"}, "holds_group"),
        ({"holds.control": "true"}, "holds.group"),
        ({"holds.group": "billing"}, "holds.control"),
        ({"holds.control": "ops,own", "holds.group": "g"}, "holds.topic names the"),
        ({"holds.control": "ops,own,told", "holds.group": "g"}, "holds.statusTopic"),
        ({"holds.topic": "a"}, "holds.topic needs holds.control"),
        ({**FOLLOWING, "holds.topic": "a b"}, "option holds.topic: "),
        ({**FOLLOWING, "holds.statusTopic": "a b"}, "option holds.statusTopic: "),
        ({**FOLLOWING, "holds.topic": "a", "holds.statusTopic": "a"}, "must differ"),
        ({"holds": "orders:2-1"}, "holds: "),
        ({"holds.file": "file:///lake/holds.json"}, "holds.file"),
        ({"holds.decisionTimeoutMs": "soon"}, "holds.decisionTimeoutMs"),
        ({"holds.clockSkewMs": "-1"}, "holds.clockSkewMs"),
        ({"holds.controlTimeoutMs": "nan"}, "holds.controlTimeoutMs"),
        ({"holds.controlTimeoutMs": "0"}, "holds.controlTimeoutMs"),
        ({"holds.decisionTimeoutMs": "0"}, "holds.decisionTimeoutMs"),
        ({"holds.decisionTimeoutMs": " 500"}, "holds.decisionTimeoutMs"),
        (
            {
                "holds.control": "true",
                "holds.group": "g",
                "holds.decisionTimeoutMs": "3000",
            },
            "holds.controlTimeoutMs must be less",
        ),
    ],
    ids=short,
)
def test_error_for_a_bad_option_names_the_option(given, named):
    with pytest.raises(SparkSettingError, match=named):
        options.parse(given)


def test_control_topics_have_the_same_default_names_as_for_consumers():
    """An operator can therefore hold consumers and streams with one command."""
    same = options.parse(FOLLOWING)
    assert same.control == HOLDS_TOPIC == "__safeconsumer_holds_ops"
    assert options.parse({**FOLLOWING, "holds.topic": " ops "}).control == "ops"


@pytest.mark.contract("S3")
@pytest.mark.parametrize(
    "name",
    [
        *("subscribe", "subscribePattern", "assign", "startingOffsets"),
        *("maxOffsetsPerTrigger", "minPartitions", "includeHeaders"),
        *("failOnDataLoss", "groupIdPrefix", "kafkaConsumer.pollTimeoutMs"),
        *("kafka.bootstrap.servers", "kafka.isolation.level"),
    ],
)
def test_option_for_sparks_own_kafka_source_is_passed_on(name):
    given = {name: "1"}
    options.parse(given)
    assert name.lower() not in options.completed(given)


@pytest.mark.contract("S3")
def test_users_options_override_the_tuned_options_whatever_their_case():
    missing = options.completed({"KAFKA.Fetch.Max.Wait.Ms": "500"})
    assert set(missing) == set(options.TUNED) - {"kafka.fetch.max.wait.ms"}


def test_secrets_stay_out_of_the_repr():
    """A log may contain the ``repr`` of the options."""
    parsed = options.parse({"kafka.sasl.jaas.config": "password='hunter2'"})
    assert (
        parsed.control_client
        == parsed.data_client
        == {"sasl.jaas.config": "password='hunter2'"}
    )
    assert "hunter2" not in repr(parsed)


def test_control_topics_may_be_on_another_cluster():
    """Properties that are not set for the control cluster are taken from the data cluster."""
    parsed = options.parse(
        {
            "kafka.bootstrap.servers": "data:9092",
            "kafka.security.protocol": "SSL",
            "holds.control.kafka.bootstrap.servers": "control:9092",
            "holds.control": "true",
            "holds.group": "g",
        }
    )
    assert parsed.control_client == {
        "bootstrap.servers": "control:9092",
        "security.protocol": "SSL",
    }
    assert parsed.data_client == {
        "bootstrap.servers": "data:9092",
        "security.protocol": "SSL",
    }


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({}, STATUS_TOPIC),
        ({"holds.statusTopic": ""}, None),
        ({"holds.statusTopic": "told"}, "told"),
    ],
    ids=short,
)
def test_stream_reports_to_the_status_topic_of_its_options(more, status):
    assert options.parse({**FOLLOWING, **more}).status == status
