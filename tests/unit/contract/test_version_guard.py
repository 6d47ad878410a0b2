import threading

import kafka
import pytest

from safeconsumer import SafeConsumer
from safeconsumer._kafka import installed
from safeconsumer.errors import UnsupportedKafkaPythonError


@pytest.fixture(autouse=True)
def _asked_anew():
    installed.require_supported.cache_clear()
    yield
    installed.require_supported.cache_clear()


def _refused():
    before = set(threading.enumerate())
    with pytest.raises(UnsupportedKafkaPythonError) as caught:
        SafeConsumer(bootstrap_servers="127.0.0.1:1", api_version=(2, 3))
    assert set(threading.enumerate()) <= before
    return str(caught.value)


@pytest.mark.contract("P13")
@pytest.mark.parametrize("version", ["2.2.20", "3.0.8", "3.1.0", "3.1.0.dev0", "4.0"])
def test_an_unsupported_version_is_refused(version, monkeypatch):
    monkeypatch.setattr(kafka, "__version__", version)
    message = _refused()
    assert version in message
    assert "kafka-python>=3.0.9,<3.1" in message


@pytest.mark.parametrize("version", ["3.0.9", "3.0.12", "3.0.99", "3.0.12.post1"])
def test_a_supported_version_is_accepted(version, monkeypatch):
    monkeypatch.setattr(kafka, "__version__", version)
    installed.require_supported()
