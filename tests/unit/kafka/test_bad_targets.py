"""A bad target or setting raises a typed error and changes nothing (P4, P5)."""

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
    # One example of each invalid form; unit/holds/test_scopes.py has more.
    ("a b", ScopeSyntaxError, "a b"),
    ("orders:x", ScopeSyntaxError, "orders:x"),
    ("re:(", ScopeSyntaxError, "re:"),
    (re.compile(b"a"), ScopeSyntaxError, "bytes"),
    # No topic can have these names, so no consumer accepts them.
    (TopicPartition("orders", -1), IllegalTargetError, "orders:-1"),
    (TopicPartition("a b", 0), IllegalTargetError, "a b"),
    ("..", IllegalTargetError, "'..'"),
    ("orders:2-0", IllegalTargetError, "a range must be ascending"),
]
ELSEWHERE = [
    ("orders:7", NotConsumedError, "orders:7"),
    ("orders:1-2", NotConsumedError, "orders:2"),
    (TopicPartition("orders", 7), NotConsumedError, "orders:7"),
    ("audit", NotConsumedError, "audit"),
]


@pytest.fixture
def consumer(safe):
    made = safe()
    assigned(made, A, B)
    return made


@pytest.mark.contract("P4", "P5")
@pytest.mark.parametrize(
    ("target", "error", "named"), [*BAD_TARGETS, *ELSEWHERE], ids=short
)
def test_bad_target_does_not_pause_anything(consumer, target, error, named):
    """The bad target may be anywhere among good targets, and no ``KeyError`` is raised."""
    for at in range(3):
        targets = [A, B]
        targets.insert(at, target)
        with pytest.raises(error, match=named) as caught:
            consumer.pause(*targets)
        assert isinstance(caught.value, SafeConsumerError)
        assert not isinstance(caught.value, KeyError)
        assert (consumer.quiet(), consumer.holds()) == (set(), ())


@pytest.mark.contract("P4")
@pytest.mark.parametrize(("target", "error", "named"), BAD_TARGETS, ids=short)
def test_resume_and_explain_refuse_a_bad_target(consumer, target, error, named):
    """A valid target that is not held does not raise an error."""
    consumer.pause(A, B)
    with pytest.raises(error, match=named):
        consumer.resume(A, target, B)
    with pytest.raises(error):
        consumer.explain(target)
    assert consumer.quiet() == {A, B}


@pytest.mark.contract("P5")
@pytest.mark.parametrize(
    ("kind", "parents"),
    [
        (NotConsumedError, {IllegalStateError}),
        (IllegalTargetError, {IllegalStateError, NotConsumedError, ScopeSyntaxError}),
    ],
)
def test_illegal_state_error_also_covers_errors_about_unassigned_targets(kind, parents):
    assert all(issubclass(kind, parent) for parent in parents)


def test_hold_as_a_target_raises_an_error_that_names_its_scope(consumer):
    consumer.pause("orders")
    (hold,) = consumer.holds()
    with pytest.raises(TargetTypeError, match=r"hold\.scope"):
        consumer.resume(hold)
    assert consumer.resume(hold.scope) == ()


@pytest.mark.parametrize("target", ["orders", re.compile("orders")], ids=short)
def test_explain_accepts_only_a_single_partition(consumer, target):
    with pytest.raises(TargetTypeError):
        consumer.explain(target)


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
def test_bad_setting_does_not_pause_anything(consumer, name, value):
    """The call raises a ``ValueError``, even without targets."""
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
        ({"pause_handover": ["off"]}, HoldSettingError, "'off' or 'assignor'"),
        ({"control": True}, ControlSettingError, r"Control\(\)"),
        ({"hooks": print}, HookTypeError, r"hooks=\[function\]"),
        ({"hooks": [1]}, HookTypeError, "callable"),
        ({"decoder": "fast"}, DecoderSettingError, "auto, python, compiled"),
        ({"decoder": ""}, DecoderSettingError, "auto, python, compiled"),
        ({"decoder": None}, DecoderSettingError, "auto, python, compiled"),
    ],
    ids=short,
)
def test_bad_constructor_argument_is_refused_before_anything_is_opened(
    configs, error, says
):
    """The error is raised before the first ``poll``, and no thread is left running."""
    before = set(threading.enumerate())
    with pytest.raises(error, match=says):
        SafeConsumer(bootstrap_servers="127.0.0.1:1", **configs)
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize(
    "wrong",
    [
        TopicPartition("orders", 0),  # without the brackets
        {0, 1},
        [None],
        [("orders", 0)],
        [A, TopicPartition("orders", "1")],
        [TopicPartition(None, 0)],
    ],
    ids=short,
)
def test_wrong_assignment_is_refused_and_changes_nothing(consumer, wrong):
    """A later correct assignment succeeds."""
    with pytest.raises(TargetTypeError, match="TopicPartition"):
        consumer.assign(wrong)
    assert consumer.assignment() == {A, B}
    assigned(consumer, A, B)
    consumer.pause(A)
    assert consumer.quiet() == {A}
