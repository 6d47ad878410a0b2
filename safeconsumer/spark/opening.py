"""Builds a stream from its options, with the sources of its holds and its reports."""

import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from contextlib import ExitStack, suppress
from typing import Protocol, TypeVar, cast

from safeconsumer.errors.base import SparkSettingError
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.spark import events
from safeconsumer.spark.clients import MakesClients
from safeconsumer.spark.committing import Committer, require_own
from safeconsumer.spark.control import ControlFollower
from safeconsumer.spark.java_clients import JavaGroup
from safeconsumer.spark.options import SourceOptions
from safeconsumer.spark.reporting import StatusReporter, StreamReport
from safeconsumer.spark.retention import Retention
from safeconsumer.spark.skipping import SkipFiles, Skipping, SkipRequests
from safeconsumer.spark.stream import Stream

_OWNER = "option"


class Opening:
    """
    Creates the streams of one session; streams that obey the same group share a reader.

    Thread rules: any thread may use this.

    Args:
        own: the ledger of this process's holds; its hooks receive the streams' events.
        clients: creates the clients of a stream.
        files: creates the object that stores skips in the source's folder of a
            checkpoint; None for a source that cannot skip.
        group: creates the object that commits progress to a group, from properties of
            Java's clients and the group's name; None if ``commitGroup`` must be
            refused.

    Attributes:
        skip_requests: the requested skips.
    """

    def __init__(
        self,
        own: PauseLedger,
        clients: MakesClients,
        files: Callable[[str], SkipFiles] | None = None,
        group: Callable[[Mapping[str, str], str], JavaGroup] | None = None,
    ) -> None:
        self._own = own
        self._clients = clients
        self._files = files
        self._group = group
        self.skip_requests = SkipRequests()
        self._shared = Shared()

    def stream(self, name: str, options: SourceOptions, folder: str = "") -> Stream:
        """
        Return a stream that obeys this process's holds and those that its options name.

        The stream connects at its first plan.

        Args:
            name: the stream's name.
            options: the stream's options.
            folder: the source's folder in the checkpoint.

        Raises:
            SparkSettingError: the ``commitGroup`` has members, or offsets that other
                clients committed.
        """
        fixed = PauseLedger()
        fixed.place(options.scopes, owner=_OWNER, reason="option holds of the stream")
        with ExitStack() as closing:
            cluster = self._clients(options.data_client).cluster()
            closing.callback(cluster.close)
            group = self._own_group(options, closing)
            follower = self._follower(options, closing)
            made = Stream(
                name,
                options,
                ledgers=(self._own, fixed),
                follower=follower,
                skipping=self._skipping(folder),
                retention=Retention(cluster),
            )
            if group is not None:
                closing.callback(_commit(made, group).close)
            if follower is not None:
                self._report(made, follower, options, closing)
            made.on_close = closing.pop_all().close
        return made

    def _own_group(
        self, options: SourceOptions, closing: ExitStack
    ) -> JavaGroup | None:
        if options.commit_group is None:
            return None
        if self._group is None:
            message = "this source cannot commit: leave out commitGroup"
            raise SparkSettingError(message)
        group = self._group(options.data_client, options.commit_group)
        closing.callback(group.close)
        until = time.monotonic() + options.control_timeout
        with suppress(*group.errors):  # each commit repeats this check
            require_own(group.name, *group.state(until))
        return group

    def _skipping(self, folder: str) -> Skipping | None:
        if self._files is None or not folder:
            return None
        return Skipping(self.skip_requests, self._files(folder))

    def _follower(
        self, options: SourceOptions, closing: ExitStack
    ) -> ControlFollower | None:
        topic = options.control
        if topic is None:
            return None
        login = frozenset(options.control_client.items())
        times = options.clock_skew, options.control_timeout
        return self._shared.lease(
            (topic, options.group, times, login),
            lambda: ControlFollower(
                self._clients(options.control_client),
                topic,
                options.group,
                skew=options.clock_skew,
                timeout=options.control_timeout,
                hooks=(self._own.forward,),
            ),
            closing,
        )

    def _report(
        self,
        made: Stream,
        follower: ControlFollower,
        options: SourceOptions,
        closing: ExitStack,
    ) -> None:
        topic = options.status
        if topic is None:
            return
        report = StreamReport(
            group=options.group,
            activity=made.activity,
            follower=follower,
            covers=made.covers,
            skew=options.clock_skew,
        )
        reporter = self._shared.lease(
            (topic, frozenset(options.control_client.items())),
            lambda: StatusReporter(topic, self._clients(options.control_client)),
            closing,
        )
        reporter.add(report)
        closing.callback(reporter.remove, report)
        made.on_change = lambda: reporter.wake() if report.has_changed() else None


def _commit(made: Stream, group: JavaGroup) -> Committer:
    stream = weakref.ref(made)  # the committer's thread must not keep the stream alive

    def report(reason: str) -> None:
        if (known := stream()) is not None:
            known.emit(events.ProgressNotCommitted, group=group.name, reason=reason)

    committer = Committer(group, report)
    made.on_end = lambda ends: committer.commit(ends, made.activity.now().query)
    return committer


class Closable(Protocol):
    """An object that several users can share."""

    def close(self) -> None:
        """Close the object."""


Lent = TypeVar("Lent", bound=Closable)


class Shared:
    """
    Creates an object for a key's first user, shares it, and closes it after the last user.

    Thread rules: any thread may use this; creating an object is fast, because it
    connects later.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lent: dict[Hashable, Closable] = {}
        self._users: Counter[Hashable] = Counter()

    def lease(
        self, key: Hashable, make: Callable[[], Lent], closing: ExitStack
    ) -> Lent:
        """Return the object for a key until ``closing`` exits; the last exit closes it."""
        with self._lock:
            if key not in self._lent:
                self._lent[key] = make()
            self._users[key] += 1
            lent = cast("Lent", self._lent[key])
        closing.callback(self._give_back, key)
        return lent

    def _give_back(self, key: Hashable) -> None:
        with self._lock:
            self._users[key] -= 1
            if self._users[key]:
                return
            del self._users[key]
            lent = self._lent.pop(key)
        lent.close()
