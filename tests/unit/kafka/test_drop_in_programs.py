"""Programs as people write them for kafka-python, with one import line changed (P13)."""

# ruff: noqa: ANN401 - a program as people write it has upstream's types, none
import json
import os
from pathlib import Path
from typing import Any

import kafka
import pytest
from kafka import TopicPartition

from safeconsumer import (
    ControlSettingError,
    ForkedConsumerError,
    SafeConsumer,
    SafeConsumerError,
    TargetTypeError,
)
from safeconsumer.errors import DecoderSettingError, HookTypeError
from tests.harness.kafka.fetches import answer, assigned, batch, offsets
from tests.harness.kafka.fixtures import Maker
from tests.harness.kafka.offline import offline

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


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
)
def test_a_wrong_assignment_is_refused_and_forgotten(safe: Maker, wrong: Any) -> None:
    """Before anything changed; a right one afterwards works, and so does all else."""
    consumer = safe()
    with pytest.raises(TargetTypeError, match="TopicPartition"):
        consumer.assign(wrong)
    assert consumer.assignment() == set()
    assigned(consumer, A)
    consumer.pause(A)
    assert consumer.paused() == {A}
    answer(consumer, A, 0, batch(0, 2))
    assert consumer.poll(0) == {}
    consumer.close(autocommit=False, timeout_ms=0)


def test_what_the_ledger_cannot_take_over_is_met_once(safe: Maker) -> None:
    """Not by every look-up that follows."""
    consumer = safe()
    with pytest.raises(TypeError):
        consumer._safe_ledger.assign([0])  # type: ignore[list-item]  # that is the test
    assigned(consumer, A)
    assert consumer.assignment() == {A}


def test_who_wraps_upstreams_next_sees_every_record(
    safe: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As tracing does: one span for each record, not for each batch."""
    consumer = safe(consumer_timeout_ms=50)
    assigned(consumer, A)
    answer(consumer, A, 0, batch(0, 5))
    seen: list[int] = []
    own = kafka.KafkaConsumer.__next__

    def traced(self: object) -> Any:
        record = own(self)
        seen.append(record.offset)
        return record

    monkeypatch.setattr(kafka.KafkaConsumer, "__next__", traced)
    assert [next(consumer).offset for _ in range(5)] == [0, 1, 2, 3, 4] == seen


class Lazy(SafeConsumer):
    """Asks twice, and returns what can be gone through once."""

    def poll(self, *args: Any, **kwargs: Any) -> Any:
        found = super().poll(*args, **kwargs) or super().poll(*args, **kwargs)
        return {tp: iter(records) for tp, records in found.items()}


def test_a_poll_of_the_applications_own_feeds_iteration() -> None:
    """Upstream's iteration calls it, too."""
    with offline(Lazy, consumer_timeout_ms=100, log=False) as consumer:
        assigned(consumer, A)
        answer(consumer, A, 0, batch(0, 3))
        got = [record.offset for record in consumer]
    assert got == [0, 1, 2]


class Listening(SafeConsumer):
    """Needs something in its subscribe() that its constructor makes last."""

    def __init__(self, *topics: str, **configs: Any) -> None:
        super().__init__(*topics, **configs)
        self.mine = object()

    def subscribe(self, *args: Any, **kwargs: Any) -> None:
        assert self.mine
        super().subscribe(*args, **kwargs)


def test_the_constructor_calls_nothing_that_a_subclass_overrides() -> None:
    """As upstream's."""
    with offline(Listening, "orders", start_paused=True, log=False) as consumer:
        assert consumer.subscription() == {"orders"}


class Slotted(SafeConsumer):
    """Has a layout of its own."""

    __slots__ = ("extra",)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("kind", [SafeConsumer, Slotted, Listening])
def test_a_forked_child_of_any_subclass_says_so(kind: type[SafeConsumer]) -> None:
    """One that is odd does not leave the others unguarded."""
    with offline(kind, log=False) as consumer:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                consumer.poll(0)
            except ForkedConsumerError:
                is_known = isinstance(consumer, kind) and "group_id" in consumer.config
                os.write(writing, b"y" if is_known else b"n")
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as answers:
            assert answers.read() == b"y"
        os.waitpid(child, 0)


@pytest.mark.parametrize(
    ("configs", "error", "says"),
    [
        ({"control": True}, ControlSettingError, r"Control\(\)"),
        ({"hooks": print}, HookTypeError, r"hooks=\[function\]"),
        ({"hooks": [1]}, HookTypeError, "callable"),
        ({"decoder": "fast"}, DecoderSettingError, "auto"),
    ],
)
def test_a_wrong_setting_is_named(
    safe: Maker, configs: dict[str, Any], error: type[Exception], says: str
) -> None:
    """By an error of ours that says what would do."""
    with pytest.raises(error, match=says) as caught:
        safe(**configs)
    assert isinstance(caught.value, SafeConsumerError)


def test_a_wrong_target_says_what_to_do(safe: Maker) -> None:
    """The mistakes that people make first."""
    consumer = safe()
    assigned(consumer, A, B)
    consumer.pause("orders")
    (hold,) = consumer.holds()
    with pytest.raises(TargetTypeError, match=r"hold\.scope"):
        consumer.resume(hold)  # type: ignore[arg-type]  # that is the test
    with pytest.raises(TargetTypeError, match=r"pause\(\*targets\)"):
        consumer.pause(consumer.assignment())  # type: ignore[arg-type]  # the same
    assert consumer.resume_all("app") == ()
    answer(consumer, A, 0, batch(0, 1))
    assert offsets(consumer.poll(0)) == {0: [0]}


def test_our_private_names_are_not_those_of_a_subclass(
    safe: Maker, tmp_path: Path
) -> None:
    """A subclass keeps its orders, its ledger and its decoder under whatever name."""
    for consumer in (safe(), safe(journal=tmp_path)):
        ours = {name for one in type(consumer).__mro__ for name in vars(one)}
        ours |= vars(consumer).keys()
        with offline(kafka.KafkaConsumer) as upstreams:
            ours -= vars(upstreams).keys() | set(dir(upstreams))
        private = {name for name in ours if name.startswith("_")}
        assert {one for one in private if not one.startswith(("_safe_", "__"))} == set()


def test_a_subclass_may_have_a_decoder_of_its_own(safe: Maker) -> None:
    """Set before or after ours is made, and the subclass's counts."""

    class Decoding(SafeConsumer):
        def __init__(self, **configs: Any) -> None:
            super().__init__(**configs)
            self.decoder = json.loads  # type: ignore[assignment]  # as programs do

    consumer = Decoding(bootstrap_servers="127.0.0.1:1", api_version=(2, 3))
    assert consumer.decoder is json.loads  # type: ignore[comparison-overlap]  # it was set
    consumer.close(autocommit=False, timeout_ms=0)
    assert safe(decoder="python").decoder == "python"
