"""Settings that cannot work are refused at construction."""

import inspect
import re
from copy import copy
from types import SimpleNamespace

import kafka.errors as kafka_errors
import pytest
from attrs import evolve, fields
from kafka import TopicPartition

from safeconsumer import Control
from safeconsumer.errors import (
    ControlSettingError,
    HoldSettingError,
    ScopeSyntaxError,
    TargetTypeError,
)
from safeconsumer.group import described_topics, findings, patterns, report_wire, topics
from tests.harness.listing import short


@pytest.mark.parametrize(
    "setting",
    [
        {"holds_topic": "no topic"},
        {"status_topic": 3},
        {"holds_topic": "same", "status_topic": "same"},
        {"unavailable": "maybe"},
        {"unavailable": ["hold"]},
        {"clock_skew": -1},
        {"clock_skew": float("nan")},
        {"clock_skew": "30"},
        {"status_interval": 0},
        {"check_interval": 0},
        {"run_after": True},
        {"trust_topic": 1},
    ],
    ids=short,
)
def test_bad_setting_is_refused(setting):
    with pytest.raises(ControlSettingError):
        Control(**setting)


def test_password_is_not_printed():
    secret = Control(client_configs={"sasl_plain_password": "hunter2"})
    assert "hunter2" not in repr(secret)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("sasl_plain_usrname", "did you mean sasl_plain_username?"),
        ("security.protocol", "did you mean security_protocol?"),
        ("quux", "no setting 'quux'"),
        ("group_id", "group_id cannot be set"),
        ("acks", "acks cannot be set"),
        ("enable_idempotence", "enable_idempotence cannot be set"),
        ("retries", "retries cannot be set"),
    ],
)
def test_unusable_client_setting_is_named_without_its_value(key, message):
    """The error omits the value, which may be a password."""
    with pytest.raises(ControlSettingError, match=re.escape(message)) as raised:
        Control(client_configs={key: "hunter2"})
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("configs", [[("sasl_plain_password", "hunter2")], None])
def test_client_settings_that_are_not_a_dict_are_refused(configs):
    """The error omits the value, which may contain a password."""
    with pytest.raises(ControlSettingError, match="a dict of kafka-python's") as raised:
        Control(client_configs=configs)
    assert "hunter2" not in str(raised.value)


def test_settings_can_be_copied():
    control = Control(holds_topic="a")
    assert copy(control) == control
    assert evolve(control, status_topic=None).holds_topic == "a"


def test_settings_are_unaffected_by_later_changes_to_the_given_dict():
    given = {"sasl_plain_username": "alice"}
    control = Control(client_configs=given)
    given["group_id"] = "x"
    assert control.client_configs == {"sasl_plain_username": "alice"}


def test_consumer_without_a_group_cannot_be_controlled(safe):
    with pytest.raises(ControlSettingError, match="group_id"):
        safe(group_id=None, control=Control(trust_topic=True))


@pytest.mark.contract("P2", "G3")
def test_pause_and_resume_refuse_an_operators_owner_name(safe):
    consumer = safe("orders")
    for call in (consumer.pause, consumer.resume):
        with pytest.raises(HoldSettingError):
            call("orders", owner="operator:alice")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (TopicPartition("orders", 3), "orders:3"),
        ("orders", "orders"),
        ("orders:3", "orders:3"),
        ("@all", "@all"),
        ("re:ord.*", "re:ord.*"),
        (re.compile("ord.*"), "re:ord.*"),
    ],
    ids=short,
)
def test_targets_of_a_group_pause_are_converted_to_scopes(target, expected):
    assert str(patterns.target(target)) == expected


def test_pattern_that_is_not_unicode_covers_everything():
    found = patterns.read("re:a\ud800")
    assert found.scope.covers(TopicPartition("orders", 0))
    assert "must be Unicode text" in found.trouble
    assert patterns.read("a\ud800") is None


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("no scope", ScopeSyntaxError),
        ("orders:x", ScopeSyntaxError),
        ("re:(", ScopeSyntaxError),
        (r"re:(a)\1", ScopeSyntaxError),
        (re.compile("a", re.IGNORECASE), ScopeSyntaxError),
        (TopicPartition("orders", -1), ScopeSyntaxError),
        (3, TargetTypeError),
    ],
    ids=short,
)
def test_invalid_target_of_a_group_pause_is_refused(target, error):
    with pytest.raises(error):
        patterns.target(target)


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        # A new cluster has no control topics, so a missing topic does not raise an error.
        (topics.Facts("t", 0, None), "no topic t: run safeconsumer control init"),
        (topics.Facts("t", 3, {}), "3 partitions"),
        (topics.Facts("t", 1, {"cleanup.policy": "delete"}), "cleanup.policy=delete"),
        (topics.Facts("t", 1, {"cleanup.policy": "compact,delete"}), "compact,delete"),
    ],
    ids=short,
)
def test_topic_that_would_lose_holds_is_reported_as_unsuitable(facts, word):
    (fault,) = topics.faults(facts)
    assert word in fault


def test_hidden_topic_is_not_called_missing():
    """Kafka returns the same error for a topic that does not exist."""

    def described(names):
        refused = kafka_errors.TopicAuthorizationFailedError.errno
        return [
            {"name": name, "partitions": [], "error_code": refused} for name in names
        ]

    admin = SimpleNamespace(describe_topics=described)
    (facts,) = described_topics.describe(admin, ["t"])
    for faults in (topics.faults(facts), topics.status_faults(facts)):
        (fault,) = faults
        assert fault == (
            "no right to describe t: safeconsumer control acls prints the ACLs that are "
            "needed"
        )


@pytest.mark.parametrize(
    ("facts", "do"),
    [
        (topics.Facts("t", 0, None), findings._INIT),
        (topics.Facts("t", 0, None, is_hidden=True), findings._ACLS),
        (topics.Facts("t", 1, None), findings._ACLS),
        (topics.Facts("t", 1, {"cleanup.policy": "delete"}), findings._INIT),
    ],
    ids=["missing", "hidden", "unknown settings", "wrong settings"],
)
def test_doctor_advises_creating_a_topic_or_granting_a_permission(facts, do):
    assert findings._advice(facts) == do


def test_suitable_topic_is_accepted_without_advice():
    facts = topics.Facts("t", 1, topics.HOLDS_SETTINGS)
    assert (topics.faults(facts), topics.advice(facts)) == ((), ())


def test_topic_with_unknown_settings_is_accepted_with_advice():
    """A member without permission to describe topic settings logs a warning instead."""
    facts = topics.Facts("t", 1, None)
    assert topics.faults(facts) == ()
    assert "DescribeConfigs" in topics.advice(facts)[0]


def test_status_topic_must_accept_the_longest_report():
    most = report_wire.MAX_REPORT_BYTES
    facts = topics.Facts("t", 1, {"max.message.bytes": str(most)})
    (fault,) = topics.status_faults(facts)
    assert fault == f"t: max.message.bytes={most}: longer reports cannot be written"
    made = topics.Facts("t", 1, topics.STATUS_SETTINGS)
    assert topics.status_faults(made) == topics.shortcomings(facts) == ()


def test_status_topic_must_use_broker_timestamps():
    settings = {**topics.STATUS_SETTINGS, "message.timestamp.type": "CreateTime"}
    (fault,) = topics.status_faults(topics.Facts("t", 1, settings))
    assert fault == (
        "t: message.timestamp.type is not LogAppendTime, so the broker's time is "
        "unknown, to members too"
    )


def test_signature_of_control_lists_its_settings():
    shown = inspect.signature(Control).parameters.values()
    assert [one.name for one in shown] == [one.name for one in fields(Control)]
    assert {one.kind for one in shown} == {inspect.Parameter.KEYWORD_ONLY}
