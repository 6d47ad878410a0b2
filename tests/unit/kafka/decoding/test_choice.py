"""
``decoder="auto" | "python" | "compiled"``: which decoder there is, and why (P15).
"""

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka.record import default_records
from attrs import frozen

from safeconsumer import SafeConsumer
from safeconsumer._kafka.decoding import decoders
from safeconsumer._kafka.decoding.sought import PythonRecords
from safeconsumer.errors import MissingExtraError
from tests.harness.kafka.fetches import answer, assigned, batch, offsets
from tests.harness.kafka.fixtures import Maker
from tests.unit.kafka.decoding.compare import TP

INSTALL = "pip install 'safeconsumer[fast]'"
Real: Any = default_records.DefaultRecordBatch


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """
    Let the choice be made anew, and forgotten afterwards.
    """
    monkeypatch.setattr(decoders, "_logged", set())
    decoders._compiled.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    decoders._compiled.cache_clear()


@pytest.mark.parametrize(
    ("wanted", "got"),
    [("auto", "compiled"), ("compiled", "compiled"), ("python", "python")],
)
def test_the_consumer_tells_its_decoder(safe: Maker, wanted: str, got: str) -> None:
    """
    As an attribute; and it is what reads the batches.
    """
    consumer = safe(decoder=wanted)
    assert consumer.decoder == got
    assigned(consumer, TP)
    answer(consumer, TP, 0, batch(0, 3))
    assert offsets(consumer.poll(0, max_records=1)) == {TP.partition: [0]}
    part = consumer._fetcher._next_partition_records
    assert (type(part) is PythonRecords) == (got == "python")
    assert offsets(consumer.poll(0)) == {TP.partition: [1, 2]}


@pytest.mark.parametrize("wanted", ["fast", "", "Auto", None])
def test_another_word_is_refused(wanted: Any) -> None:  # noqa: ANN401 - any mistake
    """
    Before anything is opened; with the words there are.
    """
    with pytest.raises(ValueError, match="auto, python, compiled"):
        SafeConsumer(decoder=wanted, bootstrap_servers="127.0.0.1:1")


def test_it_is_logged_once(
    safe: Maker, fresh: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    However many consumers there are; each decoder has a line.
    """
    del fresh
    caplog.set_level(logging.INFO, "safeconsumer")
    for wanted in ("auto", "compiled", "auto", "python", "python"):
        safe(decoder=wanted)
    first, second = (
        record.getMessage()
        for record in caplog.records
        if "record batches" in record.message
    )
    assert first.startswith("record batches: compiled decoder (aiokafka ")
    assert second == "record batches: python decoder (as requested)"


# ---------------------------------------------------------------- not to be had

_CHOOSE = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1:], None))
from safeconsumer._kafka.decoding.decoders import choose
chosen = choose("auto")
print(chosen.name, "|", chosen.detail)
try:
    print(choose("compiled").name)
except Exception as error:
    print(type(error).__name__, error)
"""


def _chosen(*missing: str, **environment: str) -> list[str]:
    done = subprocess.run(  # noqa: S603 - our own interpreter, our own program
        [sys.executable, "-c", _CHOOSE, *missing],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "missing",
    ["aiokafka", "aiokafka.codec", "aiokafka.record.default_records"],
)
def test_without_the_extra(missing: str) -> None:
    """
    ``auto`` tells the reason, ``compiled`` the way out.
    """
    auto, compiled = _chosen(missing)
    assert auto.startswith("python | ")
    assert "aiokafka" in auto
    assert compiled.startswith("MissingExtraError ")
    assert INSTALL in compiled


def test_aiokafka_without_its_compiled_part() -> None:
    """
    As on PyPy, or where somebody has switched it off: slower than upstream.
    """
    auto, compiled = _chosen(AIOKAFKA_NO_EXTENSIONS="1")
    assert auto == "python | aiokafka runs without its compiled extension"
    assert compiled.startswith("MissingExtraError ")


def test_aiokafka_whose_compiled_part_is_broken() -> None:
    """
    It falls back by itself, without a word.
    """
    auto, _ = _chosen("aiokafka.record._crecords")
    assert auto.startswith("python | ")


@pytest.mark.parametrize("wanted", ["auto", "python"])
def test_a_consumer_without_the_extra_reads_all_the_same(
    safe: Maker, fresh: pytest.MonkeyPatch, wanted: str
) -> None:
    """
    ``auto`` never fails; ``compiled`` fails before anything is opened.
    """
    fresh.setitem(sys.modules, "aiokafka", None)
    consumer = safe(decoder=wanted)
    assert consumer.decoder == "python"
    assigned(consumer, TP)
    answer(consumer, TP, 0, batch(0, 3))
    assert offsets(consumer.poll(0)) == {TP.partition: [0, 1, 2]}
    with pytest.raises(MissingExtraError) as caught:
        SafeConsumer(decoder="compiled", bootstrap_servers="127.0.0.1:1")
    assert INSTALL in str(caught.value)


# ---------------------------------------------------------------- another aiokafka


@frozen
class _Other:
    """
    A record of another aiokafka.
    """

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Any


def _decodes_otherwise(name: str, value: object) -> Callable[[Any], list[_Other]]:
    names = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")

    def batch_of(buffer: Any) -> list[_Other]:  # noqa: ANN401 - a buffer
        return [
            _Other(**{**{each: getattr(one, each) for each in names}, name: value})
            for one in Real(buffer)
        ]

    return batch_of


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("offset", 7),
        ("timestamp", 7),
        ("timestamp_type", None),
        ("key", memoryview(b"other")),
        ("value", b"other"),
        ("headers", ()),
    ],
)
def test_one_that_decodes_otherwise_is_refused(
    fresh: pytest.MonkeyPatch, name: str, value: object
) -> None:
    """
    A version we do not know yet may; a sample tells.
    """
    other = _decodes_otherwise(name, value)
    fresh.setattr(default_records, "DefaultRecordBatch", other)
    chosen = decoders.choose("auto")
    assert chosen.name == "python"
    assert chosen.detail.endswith(f"decodes {name} differently")
    with pytest.raises(MissingExtraError, match="differently"):
        decoders.choose("compiled")


@pytest.mark.parametrize(
    "other",
    [
        lambda buffer: list(Real(buffer))[:-1],
        lambda buffer: [*Real(buffer), None],
        lambda _: [object(), object()],
        lambda _: 1 // 0,
        None,
    ],
    ids=["fewer", "more", "foreign", "raises", "gone"],
)
def test_one_of_another_shape_is_refused(
    fresh: pytest.MonkeyPatch, other: object
) -> None:
    """
    Whatever it is; ``auto`` never fails.
    """
    fresh.setattr(default_records, "DefaultRecordBatch", other)
    assert decoders.choose("auto").name == "python"
    with pytest.raises(MissingExtraError):
        decoders.choose("compiled")


def test_what_was_not_to_be_had_is_looked_for_again(fresh: pytest.MonkeyPatch) -> None:
    """
    A failure is not remembered.
    """
    with fresh.context() as patched:
        patched.setitem(sys.modules, "aiokafka", None)
        assert decoders.choose("auto").name == "python"
    assert decoders.choose("auto").name == "compiled"
