"""
Makes consumers whose broker accepts connections but never answers.

With such consumers, tests of calls that need no answer take milliseconds.
"""

import socket
from contextlib import contextmanager


@contextmanager
def silent_broker():
    """
    Accept connections, but never answer.

    A closed port would not do, because upstream does not close the sockets of failed
    connection attempts. The resulting warnings are errors in tests.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@contextmanager
def offline(kind, *topics, **configs):
    """Make and yield a consumer of this class whose broker never answers."""
    with silent_broker() as address:
        consumer = kind(
            *topics, bootstrap_servers=address, api_version=(2, 3), **configs
        )
        try:
            yield consumer
        finally:
            consumer.close(autocommit=False, timeout_ms=0)
