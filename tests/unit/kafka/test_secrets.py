"""What kafka-python logs of a login, and what is left of it: without any broker."""

import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest
from kafka import KafkaAdminClient
from kafka.errors import KafkaError
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslBytesRequest

from safeconsumer import SafeConsumer
from safeconsumer._kafka.fixes.secrets import _HIDING, hide_logins
from safeconsumer._kafka.fixes.unmade import made
from tests.harness.kafka.offline import offline

SECRET = "guess-71d2ba90"  # noqa: S105 - to be found where it leaks
LOGIN = b"member\0member\0" + SECRET.encode()

FILTERED = ("kafka.protocol.parser", "kafka.net.connection", "kafka.admin.client")


@pytest.fixture(autouse=True)
def hidden() -> Iterator[None]:
    """Hide logins for each test, and leave the loggers as they were."""
    before = {name: list(logging.getLogger(name).filters) for name in FILTERED}
    hide_logins()
    yield
    for name, filters in before.items():
        logging.getLogger(name).filters[:] = filters


def _is_hiding() -> bool:
    return any(_HIDING in logging.getLogger(name).filters for name in FILTERED)


@pytest.mark.parametrize(
    ("configs", "hides"),
    [
        ({}, False),
        ({"sasl_plain_password": None, "ssl_password": None}, False),
        ({"sasl_plain_username": "me", "sasl_plain_password": SECRET}, True),
        ({"ssl_password": SECRET}, True),
    ],
)
def test_only_a_consumer_with_a_secret_changes_loggers(
    configs: dict[str, object], *, hides: bool
) -> None:
    """Others leave the process's loggers alone."""
    for name in FILTERED:
        logging.getLogger(name).removeFilter(_HIDING)
    with offline(SafeConsumer, **configs):
        assert _is_hiding() == hides


def test_importing_changes_no_logger() -> None:
    """Not even of the modules that know kafka-python's private names."""
    program = (
        "import logging, safeconsumer.consumer, safeconsumer.group.clients\n"
        f"print([n for n in {FILTERED!r} if logging.getLogger(n).filters])"
    )
    done = subprocess.run(  # noqa: S603 - a program of this test's own
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("is_stock", [True, False])
@pytest.mark.parametrize("is_bare", [True, False])
def test_a_login_is_not_logged(
    caplog: pytest.LogCaptureFixture, *, is_bare: bool, is_stock: bool
) -> None:
    """Neither as a request nor as bytes; the stock parser shows that it would be."""
    logger = logging.getLogger("kafka.protocol.parser")
    if is_stock:
        logger.removeFilter(_HIDING)
    try:
        with caplog.at_level(logging.DEBUG, "kafka.protocol.parser"):
            login = (
                SaslBytesRequest(LOGIN)
                if is_bare
                else SaslAuthenticateRequest(version=2, auth_bytes=LOGIN)
            )
            parser = KafkaProtocol(client_id="me")
            parser.send_request(MetadataRequest(version=1, topics=[]))
            parser.send_request(login)
            assert LOGIN in parser.send_bytes()
    finally:
        hide_logins()
    assert (SECRET in caplog.text) == is_stock
    assert "MetadataRequest" in caplog.text


def test_other_requests_are_logged_as_ever(caplog: pytest.LogCaptureFixture) -> None:
    """The log is there to be read."""
    with caplog.at_level(logging.DEBUG, "kafka.protocol.parser"):
        parser = KafkaProtocol(client_id="me")
        parser.send_request(MetadataRequest(version=1, topics=[]))
        parser.send_bytes()
    assert "not shown" not in caplog.text
    assert "\\x00\\x02me" in caplog.text


def test_the_admin_clients_settings(caplog: pytest.LogCaptureFixture) -> None:
    """It logs them all, with the password."""
    with (
        caplog.at_level(logging.DEBUG, "kafka.admin.client"),
        pytest.raises(KafkaError),
    ):
        made(
            KafkaAdminClient,
            bootstrap_servers="127.0.0.1:1",
            bootstrap_timeout_ms=10,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username="member",
            sasl_plain_password=SECRET,
        )
    assert "'sasl_plain_username': 'member'" in caplog.text
    assert SECRET not in caplog.text
