"""
Consumers whose broker accepts connections and never answers.

Calls that need no answer are tried on them in milliseconds.
"""

import socket
from contextlib import contextmanager


@contextmanager
def silent_broker():
    """
    Listen, so that connecting succeeds, and answer nothing.

    A closed port is not enough: upstream does not close the sockets of failed attempts,
    and warnings are errors here.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@contextmanager
def offline(kind, *topics, **configs):
    """Make a consumer of the kind that reaches no broker, and close it."""
    with silent_broker() as address:
        consumer = kind(
            *topics, bootstrap_servers=address, api_version=(2, 3), **configs
        )
        try:
            yield consumer
        finally:
            consumer.close(autocommit=False, timeout_ms=0)
