"""Defines the state that the console's pages and API calls share."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from attrs import define, field, frozen
from starlette.requests import Request

from safeconsumer.console.connection import SharedConnection
from safeconsumer.console.guard import Auth
from safeconsumer.console.problems import Problem
from safeconsumer.console.rendering import SharedPages
from safeconsumer.group.facts import NO_GROUP
from safeconsumer.group.follower import Follower, Snapshot
from safeconsumer.group.operator import Operator
from safeconsumer.group.reset_to import ResetTo
from safeconsumer.group.scopes import unknown_group
from safeconsumer.group.settings import Control
from safeconsumer.group.view import View

# The maximum number of simultaneous requests to the cluster.
_SLOTS = 8


@frozen(kw_only=True)
class Setup:
    """
    The settings of a console.

    Attributes:
        base: the kafka-python settings for connecting to the cluster.
        settings: the names of the control topics.
        owner: the owner of the holds that users place with this console.
        owner_header: the header in which a proxy names the owner instead; None if there
            is no such proxy.
        port: the port to listen on; 0 for any free port.
        host: this machine's own name, shown with holds.
        principal: the console's own user in Kafka, shown with holds.
        is_read_only: whether the console has no pages that change holds.
        token: a token that does not expire; None for a link that works once.
    """

    base: Mapping[str, Any]
    settings: Control
    owner: str
    port: int
    owner_header: str | None = None
    host: str | None = None
    principal: str | None = None
    is_read_only: bool = False
    token: str | None = None


@define(eq=False)
class State:
    """
    The state that the console's pages and API calls share.

    Attributes:
        setup: the settings of the console.
        follower: reads the current state of the groups.
        auth: decides who may use the console.
        connect: opens a connection.
        commands: the connection for changes, and for the reads that precede them. Slow
            requests never use it, because a lift may be waiting for it.
        questions: the connection for previews, and for facts that rarely change.
        limits: maps topics, if known, to the seconds after which they delete records;
            None if a topic does not delete records by age.
        pages: the pages that viewers share.
        previewed: resets with the offsets that were looked up for recent previews, by
            the plan's digest, oldest first.
        is_closing: whether the console is closing, so that waiting clients must be
            answered.
        slots: limits the number of simultaneous requests to the cluster.

    Thread rules: any thread may use this.
    """

    setup: Setup
    follower: Follower
    auth: Auth
    connect: Callable[[], Operator]
    is_closing: bool = False
    slots: threading.BoundedSemaphore = field(
        factory=lambda: threading.BoundedSemaphore(_SLOTS), init=False
    )
    commands: SharedConnection = field(init=False)
    questions: SharedConnection = field(init=False)
    limits: dict[str, float | None] = field(factory=dict, init=False)
    previewed: dict[str, ResetTo] = field(factory=dict, init=False)
    pages: SharedPages = field(factory=SharedPages, init=False)

    def __attrs_post_init__(self) -> None:
        self.commands = SharedConnection(self.connect)
        self.questions = SharedConnection(self.connect)

    def snapshot(self) -> Snapshot:
        """Return the current snapshot."""
        return self.follower.snapshot()

    def rows(self, snapshot: Snapshot) -> list[View]:
        """Return a view for each group; if the snapshot is old, states become unknown."""
        found = [*snapshot.views.values()]
        return [one.aged(snapshot.age) for one in found] if snapshot.is_old else found

    def skew(self, snapshot: Snapshot, group: str) -> float:
        """Return the maximum seconds by which a member of a group lifts holds late."""
        known = snapshot.views.get(group)
        return self.follower.settings.clock_skew if known is None else known.skew

    def view(self, snapshot: Snapshot, group: str) -> View:
        """
        Return the view of one group.

        Raises:
            Problem: neither the group nor a hold on it is known.
        """
        if group not in snapshot.views:
            if snapshot.unread:
                title = f"whether there is a group {group!r} is not known"
                raise Problem(503, title, "; ".join(snapshot.unread))
            names = (name for name, one in snapshot.views.items() if one.is_known)
            unknown = unknown_group(View(group=group, facts=NO_GROUP, ends={}), names)
            unless = "" if snapshot.is_complete else "; not everything is read yet"
            raise Problem(404, unknown, f"check the spelling{unless}")
        self.follower.watch(group)
        view = snapshot.views[group]
        return view.aged(snapshot.age) if snapshot.is_old else view

    def close(self) -> None:
        """Close the connections, except a connection on which a request is still waiting."""
        self.is_closing = True
        self.commands.close()
        self.questions.close()


def state_of(request: Request) -> State:
    """Return the state of the console that serves a request."""
    state: State = request.app.state.console
    return state
