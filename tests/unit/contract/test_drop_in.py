"""A program that changes one import line keeps upstream's names, signatures and defaults."""

import inspect
import re
import threading

import kafka
import pytest
from kafka.errors import KafkaConfigurationError

import safeconsumer
from safeconsumer import SafeConsumer
from tests.harness.kafka.offline import offline
from tests.harness.listing import short

PUBLIC = sorted(name for name in dir(kafka.KafkaConsumer) if not name.startswith("_"))
METHODS = [name for name in PUBLIC if callable(getattr(kafka.KafkaConsumer, name))]

# Methods whose positional arguments differ from upstream's, because they take targets.
VARARGS = {"pause", "resume"}


def test_kafka_consumer_is_safe_consumer_and_a_subclass_of_upstreams_consumer():
    assert safeconsumer.KafkaConsumer is SafeConsumer
    assert issubclass(SafeConsumer, kafka.KafkaConsumer)


@pytest.mark.contract("P13")
@pytest.mark.parametrize("name", METHODS, ids=short)
def test_signature_is_upstreams_plus_keyword_only_arguments(name):
    theirs = inspect.signature(getattr(kafka.KafkaConsumer, name)).parameters
    ours = inspect.signature(getattr(SafeConsumer, name)).parameters
    shared = [one for one in ours.values() if one.kind is not one.KEYWORD_ONLY]
    extra = [one for one in ours.values() if one.kind is one.KEYWORD_ONLY]
    assert [(one.kind, one.default) for one in theirs.values()] == [
        (one.kind, one.default) for one in shared
    ]
    assert all(one.default is not inspect.Parameter.empty for one in extra)
    if name not in VARARGS:
        assert list(theirs) == [one.name for one in shared]


def test_constructor_adds_keyword_only_arguments_to_upstreams_constructor():
    ours = inspect.signature(SafeConsumer).parameters
    kinds = {one.name: one.kind for one in ours.values()}
    assert inspect.Parameter.VAR_POSITIONAL is kinds.pop("topics")
    assert inspect.Parameter.VAR_KEYWORD is kinds.pop("configs")
    assert set(kinds.values()) == {inspect.Parameter.KEYWORD_ONLY}
    assert not set(kinds) & set(kafka.KafkaConsumer.DEFAULT_CONFIG)


def test_defaults_equal_upstreams_defaults():
    assert kafka.KafkaConsumer.DEFAULT_CONFIG is SafeConsumer.DEFAULT_CONFIG


@pytest.mark.contract("P13")
def test_every_setting_is_accepted_with_its_default():
    configs = {**kafka.KafkaConsumer.DEFAULT_CONFIG}
    del configs["bootstrap_servers"], configs["api_version"]
    with offline(SafeConsumer, **configs) as consumer:
        assert configs.items() <= consumer.config.items()


def test_unknown_setting_raises_upstreams_error_unchanged():
    messages = []
    for kind in (kafka.KafkaConsumer, SafeConsumer):
        with pytest.raises(KafkaConfigurationError) as caught:
            kind(bootstrap_servers="127.0.0.1:1", no_such_key=1)
        assert type(caught.value) is KafkaConfigurationError
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("value", ["first", "earliest ", 7, b"latest"], ids=short)
def test_unknown_reset_policy_is_refused_before_a_thread_starts(value):
    """Upstream treats an unknown policy as ``"none"``."""
    before = set(threading.enumerate())
    with pytest.raises(KafkaConfigurationError, match=re.escape(repr(value))):
        SafeConsumer(bootstrap_servers="127.0.0.1:1", auto_offset_reset=value)
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("value", ["Earliest", "LATEST", "none", "smallest", None])
def test_reset_policy_that_upstream_knows_is_accepted(value):
    with (
        offline(SafeConsumer, auto_offset_reset=value) as ours,
        offline(kafka.KafkaConsumer, auto_offset_reset=value) as stock,
    ):
        name = "_default_offset_reset_strategy"
        assert getattr(ours._subscription, name) == getattr(stock._subscription, name)


def test_our_additional_public_names_do_not_exist_upstream():
    """The test fails once a version of upstream uses one of these names."""
    ours = {
        name
        for name in dir(SafeConsumer)
        if not name.startswith("_") and name not in PUBLIC
    }
    assert ours == {
        "decoder",
        "explain",
        "held",
        "holds",
        "busy",
        "hook_failures",
        "pause_all",
        "quiet",
        "resume_all",
        "wakeup",
    }
