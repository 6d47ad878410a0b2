"""Commits a stream's progress to a separate consumer group after each batch."""

import logging
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Mapping

from safeconsumer._waits import InterruptibleEvent
from safeconsumer.errors.base import SparkSettingError
from safeconsumer.holds.explain import counted
from safeconsumer.holds.scope import TopicPartition
from safeconsumer.spark.java_clients import JavaGroup
from safeconsumer.spark.offsets import Offsets

# The time limit of a commit in seconds, and that of the last commit at the end.
_COMMIT_SECONDS = 5.0
_CLOSE_SECONDS = 2.0
# The metadata of each offset that a stream commits begins with this mark.
MARK = "safeconsumer stream"

log = logging.getLogger("safeconsumer.spark")


class Committer:
    """
    Commits the newest batch's end offsets, on its own thread.

    A failure is reported once, and the next batch commits again; batches never wait for
    a commit. Each commit first checks whether the group still belongs to the stream
    alone: other members may have begun to use the group, and while they are briefly
    absent, Kafka accepts any commit. If two streams share a group, only the stream that
    began to commit last continues, as after a restart. If a committer is
    garbage-collected without :meth:`close`, its thread ends after the last commit.

    Thread rules: any thread may use this.

    Args:
        group: commits the offsets.
        failed: called with the reason when commits begin to fail, and with an empty
            text when they succeed again.
    """

    def __init__(self, group: JavaGroup, failed: Callable[[str], object]) -> None:
        self._commits = _Commits(group, failed)
        # The thread must not refer to this object, so that the object can be collected.
        self._thread = threading.Thread(
            target=self._commits.run, name="safeconsumer-commits", daemon=True
        )
        self._thread.start()
        weakref.finalize(self, self._commits.end).atexit = False

    def commit(self, ends: Offsets, query: str) -> None:
        """Commit these offsets soon, without blocking."""
        self._commits.add(ends, query)

    def close(self) -> None:
        """Commit outstanding and failed offsets, and end the thread, within two seconds."""
        self._commits.end()
        self._thread.join(_CLOSE_SECONDS)


class _Commits:
    # The state and the work of a committer's thread.

    def __init__(self, group: JavaGroup, failed: Callable[[str], object]) -> None:
        self._group = group
        self._failed = failed
        self._sign = secrets.token_hex(4)  # marks metadata of this stream
        # the partitions whose offsets this stream has committed
        self._own: frozenset[TopicPartition] = frozenset()
        self._reason = ""  # the reason why the last commit failed
        self._lock = threading.Lock()
        self._ends: Offsets = {}
        self._note = ""
        self._is_over = False
        self._changed = InterruptibleEvent()

    def add(self, ends: Offsets, query: str) -> None:
        with self._lock:
            names = filter(None, (MARK, query, self._sign))
            self._ends, self._note = ends, " ".join(names)
        self._changed.set()

    def end(self) -> None:
        self._is_over = True
        self._changed.set()

    def run(self) -> None:
        is_over = False
        while not is_over:
            self._changed.wait(None)
            self._changed.clear()
            # read the flag before the commit, so that the last commit includes the last
            # ends
            is_over = self._is_over
            try:
                self._commit()
            except BaseException:
                log.exception("a hook wanted to end the thread that commits")
        self._group.close()

    def _commit(self) -> None:
        with self._lock:
            ends, note = self._ends, self._note
            self._ends = {}
        if not ends:
            return
        reason = ""
        try:
            self._commit_if_own(ends, note, time.monotonic() + _COMMIT_SECONDS)
        except Exception as error:  # noqa: BLE001 - it must not end the thread
            reason = self._group.reason(error)
            with self._lock:
                self._ends = self._ends or ends
        before, self._reason = self._reason, reason
        if bool(reason) != bool(before):
            self._failed(reason)

    def _commit_if_own(self, ends: Offsets, note: str, until: float) -> None:
        members, notes = self._group.state(until)
        require_own(self._group.name, members, notes)
        if not all(notes[tp].endswith(self._sign) for tp in self._own & notes.keys()):
            message = (
                f"commitGroup: group {self._group.name}: another stream commits to it; "
                "give each stream a group of its own"
            )
            raise SparkSettingError(message)
        self._group.commit(ends, note, until)
        self._own |= ends.keys()


def require_own(group: str, members: int, notes: Mapping[TopicPartition, str]) -> None:
    """
    Check that a group can belong to one stream alone.

    Args:
        group: the group's name.
        members: the number of the group's members.
        notes: the metadata of the group's committed offsets.

    Raises:
        SparkSettingError: the group has members, or offsets that other clients
            committed, so a commit would move the offsets of members that are absent
            now.
    """
    others = [one for one in notes.values() if not one.startswith(MARK)]
    if not members and not others:
        return
    has = "has offsets that others committed"
    if members:
        has = f"has {counted(members, 'member')}"
    message = (
        f"commitGroup: group {group} {has}; name a group that only this stream commits "
        "to, for example the query's name with -progress behind it"
    )
    raise SparkSettingError(message)
