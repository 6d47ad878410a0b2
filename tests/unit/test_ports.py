"""The ports that tests reserve for programs of their own."""

import pytest

from tests.harness.brokers import ports


def test_reserved_port_is_given_once(monkeypatch):
    """A second test process would try the same lock, by a descriptor of its own."""
    port = ports.reserved_port()
    monkeypatch.setattr(ports, "RANGE", range(port, port + 1))
    with pytest.raises(OSError, match="no free port"):
        ports.reserved_port()
