"""
What kafka-python logs of a login, and what is left of it: without any broker.
"""

import logging

import pytest
from kafka import KafkaAdminClient
from kafka.errors import KafkaError
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslBytesRequest

from safeconsumer._kafka.fixes.secrets import _HIDING, hide_logins

SECRET = "guess-71d2ba90"  # noqa: S105 - to be found where it leaks
LOGIN = b"member\0member\0" + SECRET.encode()


@pytest.mark.parametrize("is_stock", [True, False])
@pytest.mark.parametrize("is_bare", [True, False])
def test_a_login_is_not_logged(
    caplog: pytest.LogCaptureFixture, *, is_bare: bool, is_stock: bool
) -> None:
    """
    Neither as a request nor as bytes; the stock parser shows that it would be.
    """
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
    """
    The log is there to be read.
    """
    with caplog.at_level(logging.DEBUG, "kafka.protocol.parser"):
        parser = KafkaProtocol(client_id="me")
        parser.send_request(MetadataRequest(version=1, topics=[]))
        parser.send_bytes()
    assert "not shown" not in caplog.text
    assert "\\x00\\x02me" in caplog.text


def test_the_admin_clients_settings(caplog: pytest.LogCaptureFixture) -> None:
    """
    It logs them all, with the password.
    """
    with (
        caplog.at_level(logging.DEBUG, "kafka.admin.client"),
        pytest.raises(KafkaError),
    ):
        KafkaAdminClient(
            bootstrap_servers="127.0.0.1:1",
            bootstrap_timeout_ms=10,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username="member",
            sasl_plain_password=SECRET,
        )
    assert "'sasl_plain_username': 'member'" in caplog.text
    assert SECRET not in caplog.text
