"""Tests the choice of the decoder by ``decoder="auto" | "python" | "compiled"`` (P15)."""

import logging
import shutil
import sys
from pathlib import Path

import pytest

from safeconsumer import SafeConsumer
from safeconsumer._kafka import decoding
from safeconsumer._kafka.decoding import _batches, decoders
from safeconsumer._kafka.decoding.python_records import PythonRecords
from safeconsumer.errors import MissingExtraError
from tests.harness.kafka.fetches import answer, assigned, batch, offsets
from tests.harness.processes import ran_python
from tests.unit.kafka.decoding.compare import TP

INSTALL = "pip install --force-reinstall --no-deps --no-cache-dir --no-binary"
BATCHES = "safeconsumer._kafka.decoding._batches"
LIBRARY = Path(str(_batches.__file__)).name


@pytest.fixture
def fresh(monkeypatch):
    """Clear the cached decoder before and after the test."""
    monkeypatch.setattr(decoders, "_logged", set())
    decoders._compiled.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    decoders._compiled.cache_clear()


@pytest.mark.parametrize(
    ("wanted", "got"),
    [("auto", "compiled"), ("compiled", "compiled"), ("python", "python")],
)
def test_consumer_names_the_decoder_that_reads_its_batches(safe, wanted, got):
    consumer = safe(decoder=wanted)
    assert consumer.decoder == got
    assigned(consumer, TP)
    answer(consumer, TP, 0, batch(0, 3))
    assert offsets(consumer.poll(0, max_records=1)) == {TP.partition: [0]}
    part = consumer._subscription.assignment[TP].buffer.batch
    assert (type(part) is PythonRecords) == (got == "python")
    assert offsets(consumer.poll(0)) == {TP.partition: [1, 2]}


@pytest.mark.usefixtures("fresh")
def test_each_decoder_is_logged_once(safe, caplog):
    caplog.set_level(logging.INFO, "safeconsumer")
    for wanted in ("auto", "compiled", "auto", "python", "python"):
        safe(decoder=wanted)
    lines = [one.getMessage() for one in caplog.records]
    assert [one for one in lines if "record batches" in one] == [
        f"record batches: compiled decoder ({LIBRARY})",
        "record batches: python decoder (as requested)",
    ]


# ---------------------------------------------------------------- without the library


def _hide(patched):
    patched.setitem(sys.modules, BATCHES, None)
    patched.delattr(decoding, "_batches")


@pytest.mark.parametrize("wanted", ["auto", "python"])
def test_consumer_without_the_library_uses_the_python_decoder(safe, fresh, wanted):
    """The error for ``compiled`` names the install command; no connection is opened."""
    _hide(fresh)
    assert safe(decoder=wanted).decoder == "python"
    detail = decoders.choose("auto").detail
    assert detail == "this installation was built without it"
    with pytest.raises(MissingExtraError) as caught:
        SafeConsumer(decoder="compiled", bootstrap_servers="127.0.0.1:1")
    assert INSTALL in str(caught.value)


def test_library_built_from_other_sources_is_not_used(fresh):
    """In an editable installation, the library is outdated until it is rebuilt."""
    fresh.setattr(_batches, "SOURCE", "0" * 64)
    chosen = decoders.choose("auto")
    assert chosen.name == "python"
    assert chosen.detail == (
        f"{LIBRARY} was built from other sources than those beside it"
    )
    with pytest.raises(MissingExtraError, match="other sources"):
        decoders.choose("compiled")


def test_library_that_cannot_be_loaded_is_named(tmp_path):
    """In a shared checkout the library may be built for another machine."""
    package = tmp_path / "safeconsumer"
    ours = Path(decoders.__file__).parents[2]
    shutil.copytree(ours, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "_kafka/decoding" / LIBRARY).write_bytes(b"no library")
    program = (
        "from safeconsumer._kafka.decoding.decoders import choose\n"
        "chosen = choose('auto')\n"
        "print(chosen.name, chosen.detail)"
    )
    done = ran_python("-c", program, cwd=tmp_path, check=True)
    assert done.stdout.startswith("python ")
    assert LIBRARY in done.stdout
    assert "built without" not in done.stdout


def test_failed_load_is_retried(fresh):
    with fresh.context() as patched:
        _hide(patched)
        assert decoders.choose("auto").name == "python"
    assert decoders.choose("auto").name == "compiled"
