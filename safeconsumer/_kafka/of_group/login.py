"""
Finds out why a cluster cannot be reached, which kafka-python's clients hide.

kafka-python 3.0.12 retries until its timeout, whatever the broker responds, and then
raises a timeout error, so a wrong password looks like an unreachable broker.
``KafkaConnectionManager._do_bootstrap`` swallows the error of each attempt, and
``KafkaConnection.initialize`` loses the broker's message if the broker closes the
connection right after sending it.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from kafka.errors import KafkaError, UnsupportedSaslMechanismError
from kafka.net.compat import KafkaNetClient

from safeconsumer._kafka.decoding.receiving import adopt_manager
from safeconsumer._kafka.network import connect


def trouble(configs: Mapping[str, Any], timeout: float) -> Exception | None:
    """
    Connect and authenticate once; return the last address's error, or None on success.

    Args:
        configs: the connection's settings, with kafka-python's names.
        timeout: the seconds that all addresses together may take.
    """
    client = KafkaNetClient(**configs)
    adopt_manager(client._manager)
    until = time.monotonic() + timeout
    last: Exception | None = None
    try:
        for broker in client.cluster.bootstrap_brokers():
            try:
                client._net.run(_log_in, client._manager, broker, until)
            except (KafkaError, OSError) as error:
                last = error
            else:
                return None
            if time.monotonic() > until:
                break
    finally:
        # If a signal handler raises between two lines of the client's loop, the loop's
        # lock stays held, and closing fails. The handler's exception must be raised.
        with suppress(RuntimeError):
            client.close()
    return last


async def _log_in(manager: Any, broker: Any, until: float) -> None:  # noqa: ANN401 - kafka-python is untyped
    connection = await connect(manager, broker, until)
    transport = connection.transport
    try:
        await connection._get_api_versions(until)
        if manager.config["security_protocol"].startswith("SASL"):
            await _authenticate(connection, manager.config["sasl_mechanism"], until)
    finally:
        transport.close()


async def _authenticate(connection: Any, mechanism: str, until: float) -> None:  # noqa: ANN401 - kafka-python is untyped
    try:
        await connection._sasl_authenticate(until)
    except UnsupportedSaslMechanismError as error:
        message = f"the broker does not offer {mechanism}"
        raise UnsupportedSaslMechanismError(message) from error
