"""``decoder="auto" | "python" | "compiled"``: which decoder there is, and why (P15)."""

import logging
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from safeconsumer import SafeConsumer
from safeconsumer._kafka import decoding
from safeconsumer._kafka.decoding import _batches, decoders
from safeconsumer._kafka.decoding.python_records import PythonRecords
from safeconsumer.errors import MissingExtraError
from tests.harness.kafka.fetches import answer, assigned, batch, offsets
from tests.unit.kafka.decoding.compare import TP

INSTALL = "pip install --force-reinstall --no-deps --no-cache-dir --no-binary"
BATCHES = "safeconsumer._kafka.decoding._batches"
LIBRARY = Path(str(_batches.__file__)).name


@pytest.fixture
def fresh(monkeypatch):
    """Let the choice be made anew, and forgotten afterwards."""
    monkeypatch.setattr(decoders, "_logged", set())
    decoders._compiled.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    decoders._compiled.cache_clear()


@pytest.mark.parametrize(
    ("wanted", "got"),
    [("auto", "compiled"), ("compiled", "compiled"), ("python", "python")],
)
def test_a_consumer_names_the_decoder_that_it_uses(safe, wanted, got):
    """As an attribute; and it is what reads the batches."""
    consumer = safe(decoder=wanted)
    assert consumer.decoder == got
    assigned(consumer, TP)
    answer(consumer, TP, 0, batch(0, 3))
    assert offsets(consumer.poll(0, max_records=1)) == {TP.partition: [0]}
    part = consumer._subscription.assignment[TP].buffer.batch
    assert (type(part) is PythonRecords) == (got == "python")
    assert offsets(consumer.poll(0)) == {TP.partition: [1, 2]}


def test_it_is_logged_once(safe, fresh, caplog):
    """However many consumers there are; each decoder has a line."""
    del fresh
    caplog.set_level(logging.INFO, "safeconsumer")
    for wanted in ("auto", "compiled", "auto", "python", "python"):
        safe(decoder=wanted)
    first, second = (
        record.getMessage()
        for record in caplog.records
        if "record batches" in record.message
    )
    assert first == f"record batches: compiled decoder ({LIBRARY})"
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


def _chosen(*missing, folder=None):
    done = subprocess.run(  # noqa: S603 - our own interpreter, our own program
        [sys.executable, "-c", _CHOOSE, *missing],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_where_there_was_no_compiler():
    """``auto`` tells the reason, ``compiled`` the way out."""
    auto, compiled = _chosen(BATCHES)
    assert auto == "python | this installation was built without it"
    assert compiled.startswith("MissingExtraError ")
    assert INSTALL in compiled


@pytest.mark.parametrize("wanted", ["auto", "python"])
def test_a_consumer_without_it_reads_by_python(safe, fresh, wanted):
    """``compiled`` fails before anything is opened."""
    _hide(fresh)
    assert safe(decoder=wanted).decoder == "python"
    with pytest.raises(MissingExtraError) as caught:
        SafeConsumer(decoder="compiled", bootstrap_servers="127.0.0.1:1")
    assert INSTALL in str(caught.value)


def test_a_stale_one_is_not_used(fresh):
    """As after a pull, in an editable installation that was not made again."""
    fresh.setattr(_batches, "SOURCE", "0" * 64)
    chosen = decoders.choose("auto")
    assert chosen.name == "python"
    assert chosen.detail == (
        f"{LIBRARY} was built from other sources than those beside it"
    )
    with pytest.raises(MissingExtraError, match="other sources"):
        decoders.choose("compiled")


def test_one_that_cannot_be_loaded_says_why(tmp_path):
    """Another machine's, say, in a checkout that is shared."""
    package = tmp_path / "safeconsumer"
    ours = Path(decoders.__file__).parents[2]
    shutil.copytree(ours, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "_kafka/decoding" / LIBRARY).write_bytes(b"no library")
    auto, _ = _chosen(folder=tmp_path)
    assert auto.startswith("python | ")
    assert LIBRARY in auto
    assert "built without" not in auto


def test_what_was_not_to_be_had_is_looked_for_again(fresh):
    """A failure is not remembered."""
    with fresh.context() as patched:
        _hide(patched)
        assert decoders.choose("auto").name == "python"
    assert decoders.choose("auto").name == "compiled"


def _hide(patched):
    patched.setitem(sys.modules, BATCHES, None)
    patched.delattr(decoding, "_batches")
