"""A bad target is a typed error that names it, and nothing was applied (P4, P5)."""

import re
import threading
from collections.abc import Callable

import pytest
from kafka import TopicPartition
from kafka.errors import IllegalStateError

from safeconsumer import (
    HoldSettingError,
    IllegalTargetError,
    NotConsumedError,
    SafeConsumer,
    SafeConsumerError,
    ScopeSyntaxError,
    TargetTypeError,
)
from tests.harness.kafka.fetches import assigned
from tests.harness.kafka.fixtures import Maker

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)

BAD_TARGETS = [
    pytest.param(3, TargetTypeError, "3", id="number"),
    pytest.param(None, TargetTypeError, "None", id="none"),
    pytest.param(b"orders", TargetTypeError, "orders", id="bytes"),
    pytest.param(("orders", 0), TargetTypeError, "orders", id="plain tuple"),
    pytest.param([A], TargetTypeError, "orders", id="list"),
    pytest.param({A}, TargetTypeError, "orders", id="set"),
    pytest.param("", ScopeSyntaxError, "''", id="empty name"),
    pytest.param("..", ScopeSyntaxError, "'..'", id="dots"),
    pytest.param("a b", ScopeSyntaxError, "a b", id="blank"),
    pytest.param("orders:x", ScopeSyntaxError, "orders:x", id="notation, number"),
    pytest.param("orders:-1", ScopeSyntaxError, "orders:-1", id="notation, -1"),
    pytest.param("re:(", ScopeSyntaxError, "re:", id="notation, pattern"),
    pytest.param("@every", ScopeSyntaxError, "@every", id="notation, all"),
    pytest.param("orders:7", NotConsumedError, "orders:7", id="notation, other"),
    pytest.param(TopicPartition("orders", -1), ScopeSyntaxError, "orders:-1", id="-1"),
    pytest.param(TopicPartition("a\nb", 0), ScopeSyntaxError, "a.nb", id="line break"),
    pytest.param(TopicPartition("orders", "0"), ScopeSyntaxError, "'0'", id="text"),
    pytest.param(TopicPartition("orders", None), ScopeSyntaxError, "None", id="nil"),
    pytest.param(TopicPartition(None, 0), ScopeSyntaxError, "None", id="no topic"),
    pytest.param(re.compile(""), ScopeSyntaxError, "1 to", id="empty pattern"),
    pytest.param(re.compile(b"a"), ScopeSyntaxError, "bytes", id="bytes pattern"),
    pytest.param(re.compile("a", re.IGNORECASE), ScopeSyntaxError, "flags", id="flags"),
    pytest.param(TopicPartition("orders", 7), NotConsumedError, "orders:7", id="other"),
    pytest.param("audit", NotConsumedError, "audit", id="other topic"),
]

ONLY_PAUSE = {"other", "other topic", "notation, other"}


@pytest.mark.contract("P4")
@pytest.mark.parametrize(("target", "error", "named"), BAD_TARGETS)
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_bad_target_pauses_nothing(
    safe: Maker, target: object, error: type[Exception], named: str, at: int
) -> None:
    """Wherever it stands among good ones."""
    consumer = safe()
    assigned(consumer, A, B)
    targets: list[object] = [A, B]
    targets.insert(at, target)
    with pytest.raises(error, match=named) as caught:
        consumer.pause(*targets)  # type: ignore[arg-type]  # that is the test
    assert isinstance(caught.value, SafeConsumerError)
    assert consumer.paused() == set()
    assert consumer.holds() == ()


@pytest.mark.parametrize(
    ("target", "error", "named"),
    [one for one in BAD_TARGETS if one.id not in ONLY_PAUSE],
)
def test_a_bad_target_resumes_nothing(
    safe: Maker, target: object, error: type[Exception], named: str
) -> None:
    """The same rule; what is merely not held is no error."""
    consumer = safe()
    assigned(consumer, A, B)
    consumer.pause(A, B)
    with pytest.raises(error, match=named):
        consumer.resume(A, target, B)  # type: ignore[arg-type]  # that is the test
    assert consumer.paused() == {A, B}


@pytest.mark.contract("P5")
def test_what_is_not_consumed_is_upstreams_illegal_state(safe: Maker) -> None:
    """Never a bare ``KeyError``, and what catches upstream's errors catches it."""
    consumer = safe()
    assigned(consumer, A)
    with pytest.raises(IllegalStateError) as caught:
        consumer.pause(B)
    assert not isinstance(caught.value, KeyError)


@pytest.mark.parametrize(
    ("target", "named"),
    [
        (TopicPartition("orders", -1), "orders:-1"),
        (TopicPartition("a b", 0), "a b"),
        ("..", "'..'"),
    ],
)
@pytest.mark.parametrize("call", ["pause", "resume", "explain"])
def test_what_kafka_cannot_have_is_upstreams_illegal_state_too(
    safe: Maker, call: str, target: TopicPartition | str, named: str
) -> None:
    """It cannot belong to this consumer either; and it is a bad value, as before."""
    consumer = safe()
    with pytest.raises(IllegalStateError, match=named) as caught:
        getattr(consumer, call)(target)
    assert isinstance(caught.value, IllegalTargetError)
    assert isinstance(caught.value, NotConsumedError)
    assert isinstance(caught.value, ScopeSyntaxError)


@pytest.mark.parametrize(
    "setting",
    [
        {"owner": ""},
        {"owner": None},
        {"reason": "x" * 1025},
        {"reason": "bell\x07"},
        {"owner": "worker:mine"},
        {"for_": 0},
        {"for_": -1.5},
        {"for_": float("nan")},
        {"for_": float("inf")},
        {"lifetime": "until_resumed"},
    ],
    ids=str,
)
@pytest.mark.parametrize("call", ["pause", "pause_all"])
def test_a_bad_setting_pauses_nothing(
    safe: Maker, setting: dict[str, object], call: str
) -> None:
    """A ``ValueError`` at once, not later at a look-up."""
    consumer = safe()
    assigned(consumer, A)
    act: Callable[..., None] = getattr(consumer, call)
    targets = [A] if call == "pause" else []
    with pytest.raises(HoldSettingError) as caught:
        act(*targets, **setting)
    assert isinstance(caught.value, ValueError)
    assert consumer.holds() == ()


def test_a_bad_setting_is_an_error_without_targets_too(safe: Maker) -> None:
    """``pause(*assignment(), for_=0)`` is wrong on the day nothing is assigned, too."""
    with pytest.raises(HoldSettingError):
        safe().pause(for_=0)


@pytest.mark.parametrize(
    ("configs", "error"),
    [
        ({"default_lifetime": "until_resumed"}, HoldSettingError),
        ({"hooks": ("not callable",)}, TypeError),
        ({"parked_max_bytes": -1}, ValueError),
        ({"parked_max_bytes": "64"}, (ValueError, TypeError)),
        ({"start_paused": "false"}, HoldSettingError),
        ({"strict_pause": "no"}, HoldSettingError),
        ({"log": "off"}, HoldSettingError),
    ],
    ids=str,
)
def test_a_bad_constructor_argument_is_refused_at_once(
    safe: Maker, configs: dict[str, object], error: type[Exception]
) -> None:
    """Not by the first ``poll``."""
    with pytest.raises(error):
        safe(**configs)


@pytest.mark.parametrize(
    "target", ["orders", re.compile("orders"), None, ("orders", 0)]
)
def test_explain_takes_one_partition(safe: Maker, target: object) -> None:
    """Anything else is a typed error."""
    consumer = safe()
    with pytest.raises(TargetTypeError):
        consumer.explain(target)  # type: ignore[arg-type]  # that is the test


def test_many_targets_are_one_call(safe: Maker) -> None:
    """A large one is no problem either."""
    consumer = safe()
    many = [TopicPartition("orders", number) for number in range(2000)]
    consumer.assign(many)
    consumer.pause(*many)
    assert consumer.paused() == set(many)
    consumer.resume(*many)
    assert consumer.paused() == set()


def test_a_consumer_that_could_not_be_made_left_no_threads() -> None:
    """What is refused by our own checks is refused before upstream starts anything."""
    before = set(threading.enumerate())
    with pytest.raises(HoldSettingError):
        SafeConsumer(default_lifetime=None)  # type: ignore[arg-type]  # that is the test
    assert set(threading.enumerate()) <= before
