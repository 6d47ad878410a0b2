"""
What others hold: partitions of which no handler may begin a record.

A worker's own holds do not count: they keep records from coming, and what has come must
be worked on, or they would never be lifted.
"""

from collections.abc import Callable, Collection

from kafka.structs import TopicPartition

from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.view import PauseView


class Others:
    """
    Looks at a consumer's ledger for holds that are not a worker's. Any thread.
    """

    def __init__(self, ledger: PauseLedger) -> None:
        self._ledger = ledger

    def look(self) -> PauseView:
        """
        Return what holds now; applies what waits. Not to be called under a lock.
        """
        return self._ledger.view()

    def seen(self) -> PauseView:
        """
        Return what was last applied; takes no lock, and may be called under any.
        """
        return self._ledger.applied()

    def tell(self, change: Callable[[], None]) -> Callable[[], None]:
        """
        Have ``change`` called at each change of holds, before who made it goes on.

        Returns:
            What ends that.
        """
        self._ledger.lookers.append(change)
        return lambda: self._ledger.lookers.remove(change)

    def report_busy(self, busy: Callable[[], Collection[TopicPartition]]) -> None:
        """
        Let reports say quiet only of partitions that are not in ``busy``.
        """
        self._ledger.busy = busy

    def became_quiet(self) -> None:
        """
        Tell who waits for it that nothing runs of a held partition any more.
        """
        self._ledger.wake()


def covers(view: PauseView, tp: TopicPartition) -> bool:
    """
    Tell whether somebody else's hold, or a gate, covers an assigned partition.
    """
    if tp not in view.quiet:  # nearly always
        return False
    return tp in view.gates or not all(
        hold.is_routine for hold in view.state.covering(tp)
    )
