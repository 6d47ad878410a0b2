"""Finds free ports for brokers to listen on."""

import random
import socket
from collections import deque

_HOST = "127.0.0.1"
_FROM, _TO = 20_000, 30_000
_TRIES = 200

# With the global random generator, two processes with the same seed would try the same
# ports.
_random = random.SystemRandom()

# The ports that were returned recently and may not be in use yet.
_last: deque[int] = deque(maxlen=100)


def free_port() -> int:
    """
    Find a free port between 20,000 and 30,000.

    On Linux, outgoing connections use ports from 32,768 on, so none of them takes the
    port while its broker is down. The last hundred ports that this process received are
    not returned again.

    Raises:
        OSError: none of 200 ports was free.
    """
    for _ in range(_TRIES):
        port = _random.randrange(_FROM, _TO)
        if port in _last:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_HOST, port))
            except OSError:
                continue
            _last.append(port)
            return port
    msg = f"no free port between {_FROM} and {_TO} on {_HOST}"
    raise OSError(msg)
