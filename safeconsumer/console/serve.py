"""Runs the console on the loopback interface until it is interrupted."""

import socket
from collections.abc import Callable

import uvicorn

from safeconsumer.console.app import create
from safeconsumer.console.figures import Figures
from safeconsumer.console.guard import LOGIN, Auth
from safeconsumer.console.state import Setup, State
from safeconsumer.group.follower import Follower
from safeconsumer.group.operator import Operator

HOST = "127.0.0.1"
# Seconds that unfinished responses may take when the console is closed.
_GRACE_SECONDS = 1


class Server(uvicorn.Server):
    """A server that ends waiting requests before it waits for their connections."""

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
    print_link: Callable[[str], object],
    export: Callable[[Figures], object] | None = None,
) -> None:
    """
    Serve until interrupted.

    Args:
        setup: the settings of the console.
        print_link: called with the link to open as soon as the console listens.
        export: called before that with the console's metrics, which it may export.

    Raises:
        OSError: the port is in use.
    """
    with (
        socket.create_server((HOST, setup.port), backlog=128) as listener,
        Follower(setup.base, setup.settings) as following,
    ):
        port = listener.getsockname()[1]
        state = make_state(setup, following, port)
        if export is not None:
            export(Figures(state))
        print_link(f"http://{HOST}:{port}{LOGIN}?token={state.auth.token}")
        try:
            Server(state).run(sockets=[listener])
        finally:
            state.close()


def make_state(setup: Setup, following: Follower, port: int) -> State:
    """Create the state for the pages."""
    return State(
        setup=setup,
        follower=following,
        auth=Auth(
            port, setup.token, owner=setup.owner, owner_header=setup.owner_header
        ),
        connect=lambda: Operator(setup.base, setup.settings),
    )
