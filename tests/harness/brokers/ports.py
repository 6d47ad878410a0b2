"""Reserves ports for programs that take seconds until they listen."""

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

# Above the ports of the test kit, and below those of Linux's outgoing connections.
RANGE = range(30_000, 32_700)

_FOLDER = Path(tempfile.gettempdir()) / f"safeconsumer-test-ports-{os.getuid()}"
_held = []


def reserved_port():
    """
    Return a free port that no other test process gets as long as this one lives.

    Between the choice of a port and the program's own bind a JVM takes seconds. A port
    that was only free at the choice was given to another test's program meanwhile.

    Raises:
        OSError: no port of ``RANGE`` is free.
    """
    _FOLDER.mkdir(exist_ok=True)
    for port in random.SystemRandom().sample(RANGE, len(RANGE)):
        lock = os.open(_FOLDER / str(port), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError:
            os.close(lock)
            continue
        _held.append(lock)
        return port
    msg = f"no free port in {RANGE}"
    raise OSError(msg)
