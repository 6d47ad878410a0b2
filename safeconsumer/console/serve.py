"""
Runs the console on this machine's loopback until it is interrupted.
"""

import socket
from collections.abc import Callable, Mapping
from typing import Any

import uvicorn
from attrs import frozen

from safeconsumer.console.app import create
from safeconsumer.console.desk import Desk
from safeconsumer.console.guard import LOGIN, Door
from safeconsumer.group.follower import Follower
from safeconsumer.group.noting import Journal
from safeconsumer.group.operator import Operator
from safeconsumer.group.settings import Control

HOST = "127.0.0.1"
# For answers that are on their way at the end.
_GRACE_SECONDS = 1


@frozen(kw_only=True)
class Setup:
    """
    How a console is to be.

    Attributes:
        base: how to reach the cluster, in kafka-python's keys.
        settings: which control topics.
        owner: whose holds are placed here.
        port: to listen on; 0 for any.
        host: what this machine calls itself, for whoever reads a hold.
        principal: how the console logs in, for the same.
        is_read_only: whether there is no way to place and lift.
        token: one that is never used up; None for a link that works once.
        journal: is told of what is placed and lifted here; None for nobody.
    """

    base: Mapping[str, Any]
    settings: Control
    owner: str
    port: int
    host: str | None = None
    principal: str | None = None
    is_read_only: bool = False
    token: str | None = None
    journal: Journal | None = None


class Server(uvicorn.Server):
    """
    Tells whoever waits for an answer that it is over, before it waits for them.
    """

    def __init__(self, desk: Desk) -> None:
        config = uvicorn.Config(
            create(desk),
            access_log=False,
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        super().__init__(config)
        self._desk = desk

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """
        End every connection.
        """
        self._desk.is_closing = True
        await super().shutdown(sockets)


def serve(setup: Setup, tell: Callable[[str], object]) -> None:
    """
    Serve until interrupted.

    Args:
        setup: how.
        tell: is given the link to open, once the console listens.

    Raises:
        OSError: the port is taken.
    """
    with listening(setup.port) as listener, follower(setup) as following:
        port = listener.getsockname()[1]
        desk = desk_of(setup, following, port)
        tell(f"http://{HOST}:{port}{LOGIN}?token={desk.door.token}")
        try:
            Server(desk).run(sockets=[listener])
        finally:
            desk.close()


def follower(setup: Setup) -> Follower:
    """
    Make what knows; it begins as a context manager.
    """
    return Follower(setup.base, setup.settings)


def desk_of(setup: Setup, following: Follower, port: int) -> Desk:
    """
    Make what pages work with.
    """
    return Desk(
        follower=following,
        owner=setup.owner,
        host=setup.host,
        principal=setup.principal,
        cluster=", ".join(setup.base["bootstrap_servers"]),
        door=Door(port, setup.token),
        connect=lambda: Operator(setup.base, setup.settings, journal=setup.journal),
        is_read_only=setup.is_read_only,
    )


def listening(port: int) -> socket.socket:
    """
    Listen on the loopback.

    Raises:
        OSError: the port is taken.
    """
    return socket.create_server((HOST, port), backlog=128)
