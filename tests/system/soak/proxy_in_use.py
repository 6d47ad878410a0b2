"""Close proxies that are in use; a socket left open is reported on stderr."""

import asyncio
import gc
import socket

from safeconsumer.testing._ports import free_port
from tests.system.soak.proxy import Proxy

_TURNS = 6


def close_in_use(broker: socket.socket, turns: int) -> None:
    """Close a proxy so many turns of its loop after the last connections came."""
    door = "127.0.0.1", free_port()
    clients = []
    with Proxy({1: (broker.getsockname(), door)}, seed=1) as proxy:
        close = proxy._close

        async def come_and_close() -> None:
            clients.extend(socket.create_connection(door) for _ in range(3))
            for _ in range(turns):
                await asyncio.sleep(0)
            await close()

        proxy._close = come_and_close  # type: ignore[method-assign]  # to be in time
        clients.append(socket.create_connection(door))
        clients.append(broker.accept()[0])
    for client in clients:
        client.close()


if __name__ == "__main__":
    for turns in range(_TURNS):
        with socket.create_server(("127.0.0.1", 0)) as broker:
            close_in_use(broker, turns)
    gc.collect()
