"""kafka-python: at level DEBUG the password of a SASL login is in the log, twice over."""

import logging
from contextlib import suppress
from logging.handlers import BufferingHandler

from kafka import KafkaAdminClient
from kafka.errors import KafkaError
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.sasl import SaslAuthenticateRequest

SECRET = "guess-71d2ba90"  # noqa: S105 - to be found


def shown() -> str | None:
    handler = BufferingHandler(10_000)
    logging.getLogger().addHandler(handler)
    logging.getLogger("kafka").setLevel(logging.DEBUG)
    login = b"member\0member\0" + SECRET.encode()
    parser = KafkaProtocol(client_id="me")
    parser.send_request(SaslAuthenticateRequest(version=2, auth_bytes=login))
    parser.send_bytes()
    with suppress(KafkaError):
        KafkaAdminClient(
            bootstrap_servers="127.0.0.1:1",
            bootstrap_timeout_ms=10,
            sasl_plain_password=SECRET,
        )
    names = {one.name for one in handler.buffer if SECRET in one.getMessage()}
    return f"the password is in lines of {', '.join(sorted(names))}" if names else None
