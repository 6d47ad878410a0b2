"""Defines the markers that name the kind of broker that a test needs."""

import pytest

from tests.harness.brokers.choice import Kind

MARKERS = {
    "any_broker": "needs a broker of any kind",
    "embedded_suffices": "needs a broker; the embedded one suffices to test our code",
    "real_broker": "needs Apache Kafka (bootstrap or java)",
    "embedded_broker": "needs the embedded broker, into which it injects errors",
    "java_brokers": "starts brokers of its own as Java processes",
}
# The command that provides the broker that a skipped test needs.
_JAVA = "python -m tests.harness.brokers.jars fetches it for --kafka=java"
_HOW = {"real_broker": f"; {_JAVA}", "java_brokers": f"; {_JAVA}"}
_FITTING = {
    "any_broker": frozenset(Kind),
    "embedded_suffices": frozenset(Kind),
    "real_broker": frozenset(Kind) - {Kind.EMBEDDED},
    "embedded_broker": frozenset({Kind.EMBEDDED}),
    "java_brokers": frozenset({Kind.JAVA}),
}


def register(config):
    """Register the markers for ``--strict-markers``."""
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    for line in (
        "contract(id, ...): proves these promises of design/contract.md",
        "nightly: takes long and proves little more; only .ci/nightly runs it",
    ):
        config.addinivalue_line("markers", line)


def apply(items, kind):
    """Skip each test whose marker does not match the broker, and give the reason."""
    for item in items:
        names = [mark.name for mark in item.iter_markers() if mark.name in _FITTING]
        _check_marked(item, names)
        for name in names:
            if kind not in _FITTING[name]:
                why = f"{MARKERS[name]}, not {kind}{_HOW.get(name, '')}"
                item.add_marker(pytest.mark.skip(reason=why))


def _check_marked(item, names):
    fixtures = getattr(item, "fixturenames", ())
    if "kafka_broker" in fixtures and not names:
        msg = f"{item.nodeid} uses kafka_broker without a marker: {', '.join(MARKERS)}"
        raise pytest.UsageError(msg)
