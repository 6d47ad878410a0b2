"""Builds a stream from its options: the sources of its holds, and its reports."""

import threading
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Protocol, TypeVar, cast

from safeconsumer.errors.base import SparkSettingError
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.spark import events
from safeconsumer.spark.clients import Cluster, MakesClients
from safeconsumer.spark.committing import Committer, require_own
from safeconsumer.spark.control import ControlFollower
from safeconsumer.spark.options import SourceOptions
from safeconsumer.spark.reporting import StatusReporter, StreamReport
from safeconsumer.spark.retention import Retention
from safeconsumer.spark.skipping import SkipFiles, Skipping, Wanted
from safeconsumer.spark.stream import Stream

_OWNER = "option"


class Opening:
    """
    Makes the streams of one session; those that obey one group share its reader.

    Thread rules: any thread.

    Args:
        own: holds of this process; its hooks take the streams' events.
        clients: makes the clients of a stream.
        files: makes what keeps skips beside a checkpoint, from the source's folder.

    Attributes:
        wanted: the skips that were asked for.
    """

    def __init__(
        self,
        own: PauseLedger,
        clients: MakesClients,
        files: Callable[[str], SkipFiles],
    ) -> None:
        self._own = own
        self._clients = clients
        self._files = files
        self.wanted = Wanted()
        self._shared = Shared()

    def stream(self, name: str, options: SourceOptions, folder: str = "") -> Stream:
        """
        Return a stream that obeys this process and the sources of holds in its options.

        It connects to nothing: its first plan does.

        Args:
            name: the stream's name.
            options: the stream's options.
            folder: what Spark gives the source in the checkpoint.

        Raises:
            SparkSettingError: the group for commits has members, or others' offsets.
        """
        cluster = self._clients(options.client).cluster()
        if options.commit_group is not None:
            _require_own(cluster, options.commit_group, options.control_timeout)
        fixed = PauseLedger()
        fixed.place(options.scopes, owner=_OWNER, reason="option holds of the stream")
        follower, give_back = self._follower(options)
        made = Stream(
            name,
            options,
            ledgers=(self._own, fixed),
            follower=follower,
            skipping=self._skipping(folder),
            retention=Retention(cluster),
        )

        def leave() -> None:
            give_back()
            cluster.close()

        made.on_close = leave
        if options.commit_group is not None:
            _commit(made, cluster, options.commit_group)
        if follower is not None and options.status is not None:
            self._report(made, follower, options, options.status)
        return made

    def _skipping(self, folder: str) -> Skipping | None:
        return Skipping(self.wanted, self._files(folder)) if folder else None

    def _follower(
        self, options: SourceOptions
    ) -> tuple[ControlFollower | None, Callable[[], object]]:
        topic = options.control
        if topic is None:
            return None, tuple
        login = frozenset(options.client.items())
        times = options.clock_skew, options.control_timeout
        return self._shared.lease(
            (topic, options.group, times, login),
            lambda: ControlFollower(
                self._clients(options.client),
                topic,
                options.group,
                skew=options.clock_skew,
                timeout=options.control_timeout,
                hooks=(self._own.forward,),
            ),
        )

    def _report(
        self,
        made: Stream,
        follower: ControlFollower,
        options: SourceOptions,
        topic: str,
    ) -> None:
        report = StreamReport(
            group=options.group,
            watched=made.watched,
            follower=follower,
            covers=made.covers,
            skew=options.clock_skew,
        )
        reporter, give_back = self._shared.lease(
            (topic, frozenset(options.client.items())),
            lambda: StatusReporter(topic, self._clients(options.client)),
        )
        reporter.add(report)
        made.on_change = lambda: reporter.wake() if report.is_news() else None
        before = made.on_close

        def leave() -> None:
            reporter.remove(report)
            give_back()
            before()

        made.on_close = leave


def _require_own(cluster: Cluster, group: str, timeout: float) -> None:
    try:
        with suppress(*cluster.errors):  # each commit asks again
            require_own(group, *cluster.group(group, time.monotonic() + timeout))
    except SparkSettingError:
        cluster.close()
        raise


def _commit(made: Stream, cluster: Cluster, group: str) -> None:
    committer = Committer(
        cluster,
        group,
        lambda why: made.tell(events.ProgressNotCommitted, group=group, reason=why),
    )
    made.on_end = lambda ends: committer.commit(ends, made.watched.now().query)
    before = made.on_close

    def leave() -> None:
        committer.close()
        before()

    made.on_close = leave


class Closable(Protocol):
    """What is lent."""

    def close(self) -> None:
        """End it."""


Lent = TypeVar("Lent", bound=Closable)


class Shared:
    """
    Lends objects: equal ones are shared, from the first user to the last.

    Thread rules: any thread; making one connects to nothing, so nobody waits for it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lent: dict[Hashable, Closable] = {}
        self._users: dict[Hashable, set[object]] = {}

    def lease(
        self, what: Hashable, make: Callable[[], Lent]
    ) -> tuple[Lent, Callable[[], None]]:
        """Return the object for a key, and what gives it back; the last user closes it."""
        mine = object()
        with self._lock:
            if what not in self._lent:
                self._lent[what] = make()
            self._users.setdefault(what, set()).add(mine)
            lent = cast("Lent", self._lent[what])
        return lent, lambda: self._give_back(what, mine)

    def _give_back(self, what: Hashable, mine: object) -> None:
        with self._lock:
            users = self._users.get(what, set())
            if mine not in users:
                return  # it was given back before
            users.remove(mine)
            if users:
                return
            del self._users[what]
            lent = self._lent.pop(what)
        lent.close()
