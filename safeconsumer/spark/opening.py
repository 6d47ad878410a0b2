"""Builds a stream from its options: the sources of its holds, and its watch."""

import threading
from collections.abc import Callable, Hashable, Mapping
from contextlib import ExitStack
from functools import partial

from attrs import define, field

from safeconsumer.group.reports import Seen
from safeconsumer.group.settings import Control
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.scope import TopicPartition
from safeconsumer.holds.view import Holds
from safeconsumer.spark.activity import Watched
from safeconsumer.spark.control import ControlFollower
from safeconsumer.spark.hold_file import HoldFile
from safeconsumer.spark.logins import Connect, plain
from safeconsumer.spark.options import SourceOptions
from safeconsumer.spark.reporting import StreamReport, StreamReports
from safeconsumer.spark.stream import Follower, Stream
from safeconsumer.spark.watch import HeldWatch, gone

_OWNER = "option"


class Opening:
    """
    Makes the streams of one session; those that obey one group share its reader.

    Thread rules: any thread.

    Args:
        own: holds of this process; its hooks take the streams' events.
        named: holds of this process for queries with a name.
        connect: converts properties of Java's clients to kafka-python's configuration.
    """

    def __init__(
        self,
        own: PauseLedger,
        named: Mapping[str, PauseLedger] | None = None,
        connect: Connect = plain,
    ) -> None:
        self._own = own
        self._named = {} if named is None else named  # it is filled later
        self._connect = connect
        self._readers = Shared()
        self._reports = StreamReports()

    def stream(self, name: str, options: SourceOptions) -> Stream:
        """
        Return a stream that obeys this process and the sources of holds in its options.

        Args:
            name: the stream's name.
            options: the stream's options.

        Raises:
            ClientPropertyError: a property of the control clients cannot be converted.
            ControlTopicError: the settings of a control topic would let Kafka delete
                holds.
        """
        fixed = PauseLedger()
        fixed.place(options.scopes, owner=_OWNER, reason="option holds of the stream")
        followers: list[Follower] = []
        with ExitStack() as undo:
            if options.status is not None:
                # This comes first: a batch from before a restart is about to run again,
                # and connecting to the control topics may take seconds.
                told = self._report(options, options.status)
                undo.callback(told.leave)
            if options.file is not None:
                followers.append(HoldFile(options.file))
            if options.control is not None:
                control = self._control(options)
                followers.append(control)
                undo.callback(control.close)
            watch = None
            if options.watch_interval:
                watch = HeldWatch(name, options, self._own, self._connect)
            made = Stream(
                name,
                options,
                ledgers=(self._own, fixed),
                followers=tuple(followers),
                watch=watch,
                gone=partial(gone, options, connect=self._connect),
            )
            made.named = self._named
            if options.status is not None:
                told.follow(made, control)
            undo.pop_all()
        return made

    def _report(self, options: SourceOptions, topic: str) -> "_Told":
        told = _Told()
        report = StreamReport(
            group=options.group,
            watched=told.watched,
            follower=told,
            covers=told.covers,
            skew=options.clock_skew,
        )
        properties = options.control_client
        login = topic, frozenset(properties.items())
        connect = partial(self._connect, properties)
        told.wake = self._reports.add(topic, login, connect, report)
        told.is_news = report.is_news
        told.remove = partial(self._reports.remove, report)
        return told

    def _control(self, options: SourceOptions) -> "Leased":
        operator_topic, group_topic = options.control or ("", "")
        settings = Control(
            operator_topic=operator_topic,
            group_topic=group_topic,
            status_topic=None,
            clock_skew=options.clock_skew,
            start_timeout=options.control_timeout,
        )
        what = (
            *(settings.topics, options.group, options.clock_skew),
            *(options.control_timeout, frozenset(options.control_client.items())),
        )
        return self._readers.lease(
            what,
            lambda: ControlFollower(
                settings,
                options.group,
                self._connect(options.control_client),
                timeout=options.control_timeout,
                hooks=(self._own.pass_on,),
            ),
        )


class _Told:
    """The reported state of a stream: first that it starts, then what it does."""

    def __init__(self) -> None:
        self.watched = Watched()
        self.wake: Callable[[], object] = tuple
        self.is_news: Callable[[], bool] = bool
        self.remove: Callable[[], object] = tuple
        self._forget: Callable[[], object] = tuple
        self._of: tuple[Stream, Leased] | None = None

    def follow(self, stream: Stream, control: "Leased") -> None:
        """Report from now on what the stream does, and what its control topics say."""
        stream.watched = self.watched
        stream.on_change = lambda: self.wake() if self.is_news() else None
        stream.on_close = self.leave
        self._of = stream, control
        self._forget = control.on_change(self.wake)
        self.wake()

    def seen(self) -> Seen:
        """Return how far the control topics are read; nothing while it starts."""
        if self._of is None:
            return Seen(state="starting", skipped=0, applied={})
        return self._of[1].seen()

    def state(self) -> Holds:
        """Return the holds of the control topics."""
        return Holds() if self._of is None else self._of[1].state()

    def covers(self, tp: TopicPartition) -> bool:
        """Tell whether a hold of any kind covers a partition."""
        return self._of is not None and self._of[0].covers(tp)

    def leave(self) -> None:
        """Report that it stops."""
        self._forget()
        self.remove()


@define(eq=False)
class _Held:
    follower: ControlFollower | None = None
    users: int = 0
    making: threading.Lock = field(factory=threading.Lock)


class Shared:
    """
    Lends followers: equal ones are shared, from the first user to the last.

    Thread rules: any thread. Making a follower takes seconds if no broker answers: only
    those that want the same one wait for that. Nobody waits until one is closed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[Hashable, _Held] = {}

    def lease(self, what: Hashable, make: Callable[[], ControlFollower]) -> "Leased":
        """
        Return the follower for a key; the caller must close it in the end.

        Raises:
            Exception: the exception of ``make``; nothing is kept then.
        """
        with self._lock:
            held = self._held.setdefault(what, _Held())
            held.users += 1
        try:
            with held.making:
                follower = held.follower = held.follower or make()
        except BaseException:
            self._give_back(what, held)
            raise
        return Leased(follower, lambda: self._give_back(what, held))

    def _give_back(self, what: Hashable, held: _Held) -> None:
        with self._lock:
            held.users -= 1
            if held.users:
                return
            del self._held[what]
        if held.follower is not None:
            held.follower.close()


class Leased:
    """A follower that is shared with others."""

    def __init__(
        self, follower: ControlFollower, give_back: Callable[[], None]
    ) -> None:
        self._follower = follower
        self._give_back: Callable[[], None] | None = give_back

    def state(self) -> Holds:
        """Return what is known now."""
        return self._follower.state()

    def seen(self) -> Seen:
        """Return how far the control topics are read."""
        return self._follower.seen()

    def known(self) -> Holds:
        """Return the same, which reads nothing."""
        return self._follower.known()

    def on_change(self, wake: Callable[[], object]) -> Callable[[], None]:
        """Call a function whenever that may have changed; return what ends this."""
        return self._follower.on_change(wake)

    def fresh(self) -> Holds:
        """Return what was acknowledged before this call."""
        return self._follower.fresh()

    def close(self) -> None:
        """Give the follower back; the last user ends it."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()
