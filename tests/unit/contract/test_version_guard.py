import threading
from collections.abc import Iterator

import kafka
import pytest
from kafka.consumer.fetcher import ExceptionMetadata, Fetcher
from kafka.coordinator.base import BaseCoordinator, Generation
from kafka.coordinator.heartbeat import Heartbeat

from safeconsumer import SafeConsumer, UnsupportedKafkaPythonError
from safeconsumer._kafka import compat
from tests.harness.listing import each


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    compat.require_supported.cache_clear()
    yield
    compat.require_supported.cache_clear()


def _refused() -> str:
    before = set(threading.enumerate())
    with pytest.raises(UnsupportedKafkaPythonError) as caught:
        SafeConsumer(bootstrap_servers="127.0.0.1:1", api_version=(2, 3))
    assert set(threading.enumerate()) <= before
    return str(caught.value)


@pytest.mark.contract("P13")
@each("version", ["2.2.20", "3.0.8", "3.1.0", "3.1.0.dev0", "4.0"])
def test_an_unsupported_version_is_refused(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any thread starts, naming what was found and what to install."""
    monkeypatch.setattr(kafka, "__version__", version)
    message = _refused()
    assert version in message
    assert "kafka-python>=3.0.9,<3.1" in message


@each("version", ["3.0.9", "3.0.12", "3.0.99", "3.0.12.post1"])
def test_a_supported_version_is_accepted(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole line from the first that keeps its partitions alive."""
    monkeypatch.setattr(kafka, "__version__", version)
    compat.require_supported()


def test_a_missing_method_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the version says: names decide."""
    monkeypatch.delattr(Fetcher, "_append")
    assert "Fetcher._append is gone" in _refused()


def test_a_changed_signature_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our override would be called in another way."""
    monkeypatch.setattr(Fetcher, "_append", lambda self, part: part)  # noqa: ARG005 - a signature
    assert "Fetcher._append takes self, part" in _refused()


def test_a_name_that_looks_public_is_missed_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Upstream promises nothing of what its documented classes are made of."""
    monkeypatch.delattr(Generation, "is_lost")
    assert "Generation.is_lost is gone" in _refused()


def test_an_attribute_that_no_new_object_has_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of each is made and looked at, where that opens nothing."""
    monkeypatch.setattr(Heartbeat, "__init__", lambda self: None)  # noqa: ARG005 - a signature
    assert "Heartbeat has no config; Heartbeat has no last_receive" in _refused()


def test_fields_in_another_order_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """We make such tuples ourselves."""
    monkeypatch.setattr(ExceptionMetadata, "_fields", ("partition", "exception"))
    expected = "ExceptionMetadata has the fields partition, exception"
    assert expected in _refused()


def test_a_coroutine_that_is_none_any_more_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Awaiting its result would fail in the middle of a join."""
    monkeypatch.setattr(
        BaseCoordinator,
        "join_group_async",
        lambda self, timeout_ms=None: True,  # noqa: ARG005 - a signature
    )
    assert "BaseCoordinator.join_group_async is not a coroutine" in _refused()


def test_a_missing_attribute_is_named() -> None:
    """Live objects are asked before they are adopted."""
    with pytest.raises(UnsupportedKafkaPythonError, match="Fetcher has no _"):
        compat.require_attributes(object(), Fetcher)
