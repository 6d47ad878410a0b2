"""The package refuses kafka-python if its version or its modules are unsupported (P13)."""

import sys
import threading
from pathlib import Path

import kafka
import pytest

import safeconsumer
from safeconsumer import SafeConsumer
from safeconsumer._kafka import installed
from safeconsumer.cli.errors import Status
from safeconsumer.errors import UnsupportedKafkaPythonError
from tests.harness.processes import ran_python

OURS = str(Path(safeconsumer.__file__).parents[1])

PROGRAM = """
import sys
sys.path[:0] = {path!r}
import safeconsumer
from safeconsumer.errors import UnsupportedKafkaPythonError
assert "kafka" not in sys.modules, "the root is lazy"
try:
    safeconsumer.SafeConsumer(bootstrap_servers="127.0.0.1:1")
except UnsupportedKafkaPythonError as error:
    print(error)
"""

# The modules that each fake of kafka-python contains.
TWO = ("consumer", "consumer/fetcher", "coordinator", "cluster", "errors", "structs")
MOVED = ("errors", "structs")
NAMES = {
    "consumer/fetcher": "class ConsumerRecord: ...\nclass Fetcher: ...",
    "structs": "class TopicPartition: ...\nclass OffsetAndMetadata: ...",
    "errors": "class IllegalStateError(Exception): ...",
    "cluster": "class ClusterMetadata: ...",
}


def _fake(root, version, modules):
    package = root / "kafka"
    package.mkdir()
    (package / "__init__.py").write_text(f"__version__ = {version!r}\n")
    for name in modules:
        if name not in NAMES:
            (package / name).mkdir()
        target = package / (f"{name}.py" if name in NAMES else f"{name}/__init__.py")
        target.write_text(NAMES.get(name, ""))


def _message(root):
    done = ran_python("-c", PROGRAM.format(path=[str(root), OURS]))
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("version", "modules"),
    [("2.3.0", TWO), ("3.1.0", MOVED), ("3.0.12", TWO), ("0.0", ())],
)
def test_kafka_python_without_the_required_modules_raises_a_typed_error(
    tmp_path, version, modules
):
    _fake(tmp_path, version, modules)
    message = _message(tmp_path)
    assert f"kafka-python {version} is not supported" in message
    assert "install 'kafka-python>=3.0.9,<3.1'" in message


def test_other_package_named_kafka_raises_the_typed_error(tmp_path):
    """Such a package may be the application's own directory ``kafka``."""
    (tmp_path / "kafka").mkdir()
    (tmp_path / "kafka" / "__init__.py").write_text("")
    assert "what is installed as 'kafka' is not supported" in _message(tmp_path)


def test_import_error_for_another_reason_is_raised_unchanged(monkeypatch):
    """A missing dependency is not kafka-python's fault."""
    monkeypatch.setitem(sys.modules, "safeconsumer.holds.hold", None)
    monkeypatch.delitem(vars(safeconsumer), "Hold", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"holds\.hold"):
        _ = safeconsumer.Hold


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["pause", "x"]])
def test_command_reports_an_unsupported_version_in_one_line(tmp_path, arguments):
    """The user sees no traceback."""
    _fake(tmp_path, "2.3.3", TWO)
    path = f"import sys; sys.path[:0] = {[str(tmp_path), OURS]!r}"
    program = f"{path}; from safeconsumer.cli.main import main; main()"
    done = ran_python("-c", program, *arguments)
    assert done.returncode == Status.USAGE
    assert done.stderr.startswith("safeconsumer: kafka-python 2.3.3 is not supported")
    assert done.stderr.count("\n") == 1


@pytest.fixture
def _fresh_check():
    installed.require_supported.cache_clear()
    yield
    installed.require_supported.cache_clear()


@pytest.mark.contract("P13")
@pytest.mark.usefixtures("_fresh_check")
@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("2.2.20", "older"),
        ("3.0.8", "older"),
        ("3.1.0", "newer"),
        ("3.1.0.dev0", "newer"),
        ("4.0", "newer"),
    ],
)
def test_unsupported_version_is_refused(version, why, monkeypatch):
    monkeypatch.setattr(kafka, "__version__", version)
    before = set(threading.enumerate())
    with pytest.raises(UnsupportedKafkaPythonError) as caught:
        SafeConsumer(bootstrap_servers="127.0.0.1:1", api_version=(2, 3))
    assert set(threading.enumerate()) <= before
    assert f"{version} is not supported (it is {why} than" in str(caught.value)
    assert "kafka-python>=3.0.9,<3.1" in str(caught.value)


@pytest.mark.usefixtures("_fresh_check")
@pytest.mark.parametrize("version", ["3.0.9", "3.0.12", "3.0.99", "3.0.12.post1"])
def test_supported_version_is_accepted(version, monkeypatch):
    monkeypatch.setattr(kafka, "__version__", version)
    installed.require_supported()
