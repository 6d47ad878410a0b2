"""A bad target is a typed error that names it, and nothing was applied (P4, P5)."""

import math
import re
import threading
from datetime import timedelta

import pytest
from kafka import TopicPartition
from kafka.errors import IllegalStateError

from safeconsumer import Lifetime, SafeConsumer, SafeConsumerError
from safeconsumer.errors import (
    ControlSettingError,
    DecoderSettingError,
    HoldSettingError,
    HookTypeError,
    IllegalTargetError,
    NotConsumedError,
    ScopeSyntaxError,
    TargetTypeError,
)
from tests.harness.kafka.fetches import assigned
from tests.harness.listing import short

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)

BAD_TARGETS = [
    (3, TargetTypeError, "3"),
    (None, TargetTypeError, "None"),
    (b"orders", TargetTypeError, "orders"),
    (("orders", 0), TargetTypeError, "orders"),
    ([A], TargetTypeError, "orders"),
    ({A}, TargetTypeError, r"pause\(\*targets\)"),
    # One of each form; what else is illegal is told by holds/test_scopes.py.
    ("a b", ScopeSyntaxError, "a b"),
    ("orders:x", ScopeSyntaxError, "orders:x"),
    ("re:(", ScopeSyntaxError, "re:"),
    (TopicPartition("orders", -1), ScopeSyntaxError, "orders:-1"),
    (re.compile(b"a"), ScopeSyntaxError, "bytes"),
]
ELSEWHERE = [
    ("orders:7", NotConsumedError, "orders:7"),
    (TopicPartition("orders", 7), NotConsumedError, "orders:7"),
    ("audit", NotConsumedError, "audit"),
]


@pytest.fixture
def consumer(safe):
    made = safe()
    assigned(made, A, B)
    return made


@pytest.mark.contract("P4")
@pytest.mark.parametrize(
    ("target", "error", "named"), [*BAD_TARGETS, *ELSEWHERE], ids=short
)
def test_a_bad_target_pauses_nothing(consumer, target, error, named):
    """Wherever it stands among good ones."""
    for at in range(3):
        targets = [A, B]
        targets.insert(at, target)
        with pytest.raises(error, match=named) as caught:
            consumer.pause(*targets)
        assert isinstance(caught.value, SafeConsumerError)
        assert (consumer.quiet(), consumer.holds()) == (set(), ())


@pytest.mark.contract("P4")
@pytest.mark.parametrize(("target", "error", "named"), BAD_TARGETS, ids=short)
def test_a_bad_target_resumes_nothing(consumer, target, error, named):
    """The same rule; what is merely not held is no error."""
    consumer.pause(A, B)
    with pytest.raises(error, match=named):
        consumer.resume(A, target, B)
    assert consumer.quiet() == {A, B}


def test_a_hold_is_no_target_and_its_scope_is(consumer):
    """The mistake that people make first says what to do."""
    consumer.pause("orders")
    (hold,) = consumer.holds()
    with pytest.raises(TargetTypeError, match=r"hold\.scope"):
        consumer.resume(hold)
    assert consumer.resume(hold.scope) == ()


@pytest.mark.contract("P5")
def test_what_is_not_consumed_is_upstreams_illegal_state(consumer):
    """P5: never a bare ``KeyError``, and what catches upstream's errors catches it."""
    with pytest.raises(IllegalStateError) as caught:
        consumer.pause("audit")
    assert not isinstance(caught.value, KeyError)


@pytest.mark.parametrize(
    ("target", "named"),
    [
        (TopicPartition("orders", -1), "orders:-1"),
        (TopicPartition("a b", 0), "a b"),
        ("..", "'..'"),
    ],
    ids=short,
)
def test_what_kafka_cannot_have_is_upstreams_illegal_state_too(consumer, target, named):
    """It cannot belong to this consumer either; and it is a bad value, as before."""
    for call in (consumer.pause, consumer.resume, consumer.explain):
        with pytest.raises(IllegalStateError, match=named) as caught:
            call(target)
        assert isinstance(caught.value, IllegalTargetError)
        assert isinstance(caught.value, NotConsumedError)
        assert isinstance(caught.value, ScopeSyntaxError)


BAD_SETTINGS = {
    "owner": ["", " ", "\t", "a\nb", "\x1b[31m", "x" * 250, None, 7, "worker:mine"],
    "reason": ["x" * 1025, "\u00fc" * 513, "bell\x07", "\x1b[0m", b"bytes", 1],
    "for_": [
        *(0, -1, -1.5, -0.0, math.nan, math.inf, -math.inf, True, "1"),
        *(timedelta(0), timedelta(-1)),
        *(10**400, -(10**400)),  # an int may be larger than any float
    ],
    "lifetime": ["until_resumed", 0, "", False, Lifetime.PLAIN],
}


@pytest.mark.contract("P4")
@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, values in BAD_SETTINGS.items() for value in values],
    ids=short,
)
def test_a_bad_setting_pauses_nothing(consumer, name, value):
    """A ``ValueError`` at once, not later at a look-up; also where nothing is named."""
    calls = [
        consumer.pause_all,
        consumer.pause,
        lambda **setting: consumer.pause(A, **setting),
    ]
    for call in calls:
        with pytest.raises(HoldSettingError, match=name) as caught:
            call(**{name: value})
        assert isinstance(caught.value, ValueError)
        assert consumer.holds() == ()


@pytest.mark.parametrize(
    ("configs", "error", "says"),
    [
        ({"default_lifetime": "until_resumed"}, HoldSettingError, None),
        ({"default_lifetime": ""}, HoldSettingError, None),
        ({"default_lifetime": Lifetime.PLAIN}, HoldSettingError, None),
        ({"parked_max_bytes": -1}, ValueError, None),
        ({"parked_max_bytes": "64"}, (ValueError, TypeError), None),
        ({"start_paused": "false"}, HoldSettingError, None),
        ({"log": "off"}, HoldSettingError, None),
        ({"control": True}, ControlSettingError, r"Control\(\)"),
        ({"hooks": print}, HookTypeError, r"hooks=\[function\]"),
        ({"hooks": [1]}, HookTypeError, "callable"),
        ({"decoder": "fast"}, DecoderSettingError, "auto, python, compiled"),
        ({"decoder": ""}, DecoderSettingError, "auto, python, compiled"),
        ({"decoder": None}, DecoderSettingError, "auto, python, compiled"),
    ],
    ids=short,
)
def test_a_bad_constructor_argument_is_refused_before_anything_is_opened(
    configs, error, says
):
    """Not by the first ``poll``; no thread is left."""
    before = set(threading.enumerate())
    with pytest.raises(error, match=says):
        SafeConsumer(bootstrap_servers="127.0.0.1:1", **configs)
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize(
    "target", ["orders", re.compile("orders"), None, ("orders", 0)], ids=short
)
def test_explain_takes_one_partition(consumer, target):
    """Anything else is a typed error."""
    with pytest.raises(TargetTypeError):
        consumer.explain(target)


@pytest.mark.parametrize(
    "wrong",
    [
        TopicPartition("orders", 0),  # the brackets forgotten
        {0, 1},
        [None],
        [("orders", 0)],
        [A, TopicPartition("orders", "1")],
        [TopicPartition(None, 0)],
    ],
    ids=short,
)
def test_a_wrong_assignment_is_refused_and_forgotten(consumer, wrong):
    """Before anything changed; a right one afterwards works, and so does all else."""
    with pytest.raises(TargetTypeError, match="TopicPartition"):
        consumer.assign(wrong)
    assert consumer.assignment() == {A, B}
    assigned(consumer, A, B)
    consumer.pause(A)
    assert consumer.quiet() == {A}
