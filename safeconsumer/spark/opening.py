"""Builds a stream from its options: the sources of its holds, and its reports."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable
from contextlib import ExitStack, suppress
from typing import Protocol, TypeVar, cast

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
        fixed = PauseLedger()
        fixed.place(options.scopes, owner=_OWNER, reason="option holds of the stream")
        with ExitStack() as closing:
            cluster = self._clients(options.data_client).cluster()
            closing.callback(cluster.close)
            if options.commit_group is not None:
                _require_own(cluster, options.commit_group, options.control_timeout)
            follower = self._follower(options, closing)
            made = Stream(
                name,
                options,
                ledgers=(self._own, fixed),
                follower=follower,
                skipping=self._skipping(folder),
                retention=Retention(cluster),
            )
            if options.commit_group is not None:
                closing.callback(_commit(made, cluster, options.commit_group).close)
            if follower is not None:
                self._report(made, follower, options, closing)
            made.on_close = closing.pop_all().close
        return made

    def _skipping(self, folder: str) -> Skipping | None:
        return Skipping(self.wanted, self._files(folder)) if folder else None

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
            watched=made.watched,
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
        made.on_change = lambda: reporter.wake() if report.is_news() else None


def _require_own(cluster: Cluster, group: str, timeout: float) -> None:
    with suppress(*cluster.errors):  # each commit asks again
        require_own(group, *cluster.group(group, time.monotonic() + timeout))


def _commit(made: Stream, cluster: Cluster, group: str) -> Committer:
    committer = Committer(
        cluster,
        group,
        lambda why: made.tell(events.ProgressNotCommitted, group=group, reason=why),
    )
    made.on_end = lambda ends: committer.commit(ends, made.watched.now().query)
    return committer


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
        self._users: Counter[Hashable] = Counter()

    def lease(
        self, what: Hashable, make: Callable[[], Lent], closing: ExitStack
    ) -> Lent:
        """Return the object for a key until ``closing``; the last user closes it."""
        with self._lock:
            if what not in self._lent:
                self._lent[what] = make()
            self._users[what] += 1
            lent = cast("Lent", self._lent[what])
        closing.callback(self._give_back, what)
        return lent

    def _give_back(self, what: Hashable) -> None:
        with self._lock:
            self._users[what] -= 1
            if self._users[what]:
                return
            del self._users[what]
            lent = self._lent.pop(what)
        lent.close()
