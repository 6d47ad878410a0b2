"""Runs the console on this machine's loopback until it is interrupted."""

import socket
from collections.abc import Callable, Mapping
from typing import Any

import uvicorn
from attrs import frozen

from safeconsumer.console.app import create
from safeconsumer.console.figures import Figures
from safeconsumer.console.guard import LOGIN, Auth
from safeconsumer.console.state import State
from safeconsumer.group.follower import Follower
from safeconsumer.group.noting import Journal
from safeconsumer.group.operator import Operator
from safeconsumer.group.settings import Control

HOST = "127.0.0.1"
# Seconds that answers under way get when the console ends.
_GRACE_SECONDS = 1


@frozen(kw_only=True)
class Setup:
    """
    The settings of a console.

    Attributes:
        base: how to reach the cluster, with kafka-python's keys.
        settings: the names of the control topics.
        owner: the owner of holds that are placed here.
        port: the port to listen on; 0 for any free one.
        host: this machine's own name, shown with holds.
        principal: the console's login, shown with holds.
        is_read_only: whether holds cannot be placed or lifted here.
        token: a token that does not expire; None for a link that works once.
        journal: records the holds that are placed and lifted here; None for no journal.
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
    """Ends waiting requests before it waits for their connections."""

    def __init__(self, state: State) -> None:
        config = uvicorn.Config(
            create(state),
            access_log=False,
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        super().__init__(config)
        self._state = state

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End every connection."""
        self._state.is_closing = True
        await super().shutdown(sockets)


def serve(
    setup: Setup,
    tell: Callable[[str], object],
    show: Callable[[Figures], object] | None = None,
) -> None:
    """
    Serve until interrupted.

    Args:
        setup: the settings of the console.
        tell: called with the link to open, once the console listens.
        show: called before that with the console's figures, to export them too.

    Raises:
        OSError: the port is taken.
    """
    with listening(setup.port) as listener, follower(setup) as following:
        port = listener.getsockname()[1]
        state = make_state(setup, following, port)
        if show is not None:
            show(Figures(state))
        tell(f"http://{HOST}:{port}{LOGIN}?token={state.auth.token}")
        try:
            Server(state).run(sockets=[listener])
        finally:
            state.close()


def follower(setup: Setup) -> Follower:
    """Make the follower; entering it as a context manager starts it."""
    return Follower(setup.base, setup.settings)


def make_state(setup: Setup, following: Follower, port: int) -> State:
    """Make the state for the pages."""
    return State(
        follower=following,
        owner=setup.owner,
        host=setup.host,
        principal=setup.principal,
        cluster=", ".join(setup.base["bootstrap_servers"]),
        auth=Auth(port, setup.token),
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
