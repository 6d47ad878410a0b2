"""Reserves ports for programs that start to listen only after some seconds."""

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

# These ports are above the test kit's ports and below the ports that Linux uses for
# outgoing connections.
RANGE = range(30_000, 32_700)

_FOLDER = Path(tempfile.gettempdir()) / f"safeconsumer-test-ports-{os.getuid()}"
_held = []


def reserved_port():
    """
    Return a free port that no other test process gets while this process lives.

    A JVM calls ``bind`` only some seconds after its port was chosen. During that time
    another test's program could take a port that is free but not reserved.

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
