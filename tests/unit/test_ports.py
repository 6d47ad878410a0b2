"""Tests the ports that tests reserve for their own programs."""

import pytest

from tests.harness.brokers import ports


def test_reserved_port_is_given_out_only_once(monkeypatch):
    """Another test process would try the same lock through its own descriptor."""
    port = ports.reserved_port()
    monkeypatch.setattr(ports, "RANGE", range(port, port + 1))
    with pytest.raises(OSError, match="no free port"):
        ports.reserved_port()
