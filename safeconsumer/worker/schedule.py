"""
What becomes of results: completed, tried again, given up.
"""

from collections.abc import Iterable, Iterator, Sequence

from safeconsumer.worker.claims import record_at
from safeconsumer.worker.failures import Failures
from safeconsumer.worker.held import Epoch
from safeconsumer.worker.lanes import KEYLESS, Indexes, Lane, State, Task
from safeconsumer.worker.outcomes import Outcome
from safeconsumer.worker.progress import Chunk

# A lane whose last task came back and that waits for nothing; a shared one may have
# run empty while tasks of it were still out.
_FREE = frozenset({State.RUNNING, State.IDLE})
_MOVING = frozenset({State.RUNNING, State.READY})


class Schedule(Failures):
    """
    Hands out work and takes back results; every method may be called by any thread.
    """

    # ------------------------------------------------------------ records come

    def admit(self, epoch: Epoch, chunk: Chunk) -> None:
        """
        Queue a chunk. The polling thread's.
        """
        with self._held.lock:
            epoch.unsorted.append((chunk, 0))
        self.obey()  # a new epoch has seen nothing yet
        self._sort(epoch)

    def turn(self) -> float:
        """
        Wake what has slept long enough; return the seconds until the next is due.
        """
        self.look()
        soon = super().turn()
        for epoch in self._held.epochs.values():
            if epoch.unsorted:
                self._sort(epoch)
        return soon

    def _sort(self, epoch: Epoch) -> None:
        # What stands behind a record without a key waits for it: it may be of its lane.
        while (taken := self._next_unsorted(epoch)) is not None:
            chunk, first = taken
            groups = self._lanes.group(chunk, first)  # the user's code: under no lock
            with self._held.lock:
                self._clear_lanes(epoch)
                self._make_all_ready(
                    self._lanes.queue(epoch, chunk, groups.sorted),
                )
                if groups.failed is not None:
                    self._fail_keyless(epoch, chunk, *groups.failed)
                self._wake_one()
                told = self._taken()
            self._tell_all(told)

    def _next_unsorted(self, epoch: Epoch) -> tuple[Chunk, int] | None:
        with self._held.lock:
            if not epoch.unsorted or KEYLESS in epoch.lanes:
                return None
            return epoch.unsorted.popleft()

    def _fail_keyless(
        self, epoch: Epoch, chunk: Chunk, index: int, error: BaseException
    ) -> None:
        epoch.unsorted.appendleft((chunk, index + 1))
        lane = epoch.lanes[KEYLESS] = Lane(epoch, KEYLESS)
        attempt = epoch.failures.get(record_at(chunk, index).offset, 0) + 1
        self._fail(lane, Task(lane, chunk, [index], attempt), index, error)
        if lane.state is State.IDLE:
            self._next(lane)

    def _wake(self, lane: Lane) -> None:
        if lane.key is not KEYLESS:
            super()._wake(lane)
            return
        # Its key is asked for again, by the sorting that follows.
        del lane.epoch.lanes[KEYLESS]
        for chunk, (index,) in lane.runs:
            lane.epoch.unsorted[0] = (chunk, index)

    # ------------------------------------------------------------ results

    def complete(self, outcomes: Sequence[Outcome]) -> None:
        """
        Take over results; those of closed epochs change nothing.
        """
        with self._held.lock:
            for outcome in outcomes:
                self._complete(outcome)
            if not self._held.running:
                self._held.idle.notify_all()
            told = self._taken()
            is_quiet = any(
                one.task.epoch.is_held and not one.task.epoch.running
                for one in outcomes
            )
        self._tell_all(told)
        self._held.tell_low()
        if is_quiet and self._others is not None:
            self._others.became_quiet()

    def fail(self, error: BaseException) -> None:
        """
        Have the worker stop for this, unless something else stops it already.
        """
        with self._held.lock:
            self._stop_for(error)

    def _complete(self, outcome: Outcome) -> None:
        task, epoch = outcome.task, outcome.task.epoch
        if epoch.is_closed:
            return
        epoch.running -= len(task.indexes)
        self._held.running -= len(task.indexes)
        if outcome.finished:
            self._succeed(outcome)
        if task.bundle and len(outcome.finished) == len(task.indexes):
            self._next_all(task.bundle)
        else:
            for part in _parts(outcome) if task.bundle else (outcome,):
                self._conclude(part)
        self._unpark(epoch)

    def _conclude(self, part: Outcome) -> None:
        lane = part.task.lane
        if not part.task.epoch.revoked.is_set():
            self._put_back(part)
        if lane.state in _FREE:
            self._next(lane)

    def _succeed(self, outcome: Outcome) -> None:
        epoch, count = outcome.task.epoch, len(outcome.finished)
        self._held.release(epoch, outcome.task.chunk, outcome.finished)
        self.failing = self.failing.succeeded(count)
        self.durations.add(outcome.seconds, count)
        if outcome.seconds:
            epoch.keep_pace(outcome.seconds / count)
        tried = outcome.task.tried
        if tried is not None:
            epoch.failures.pop(tried, None)
            epoch.alone.discard(tried)

    def _put_back(self, outcome: Outcome) -> None:
        task, lane = outcome.task, outcome.task.lane
        if lane.is_shared and outcome.failed and not outcome.is_suspect:
            self._set_apart(outcome)
            return
        lane.put_back(task.chunk, outcome.left)
        # In order: the first is dealt with now, the others by themselves, after it.
        first = 0 if outcome.is_suspect else 1
        later = [index for index, _ in outcome.failed[first:]]
        for index, error in outcome.failed[first:]:
            if outcome.is_suspect:
                task.epoch.alone.add(record_at(task.chunk, index).offset)
            else:
                self._keep_answer(task, index, error)
        lane.put_back(task.chunk, later)
        for index, error in outcome.failed[:first]:
            self._fail(lane, task, index, error)

    def _set_apart(self, outcome: Outcome) -> None:
        # Each by itself; but what came in one batch and was not begun stays with it, or
        # the rest of a batch that asks for later would be asked again at once.
        task = outcome.task
        for index, error in outcome.failed:
            own = Lane(task.epoch, object())
            task.epoch.lanes[own.key] = own
            rest = own if self._policy.is_batch else task.lane
            if index == outcome.failed[-1][0]:
                rest.put_back(task.chunk, outcome.left)
            self._fail(own, task, index, error)
            if own.state is State.IDLE:
                self._next(own)

    def _next_all(self, bundle: Sequence[tuple[Lane, Indexes]]) -> None:
        # As _next() for each, in line: there is one for nearly every record.
        ready, idle = self._ready, State.IDLE
        is_full = len(bundle[0][0].epoch.lanes) > self._room_of_lanes()
        for lane, _ in bundle:
            if lane.runs:
                lane.state = State.READY
                ready.append(lane)
            elif is_full or not lane.is_light:
                self._let_go(lane)
            else:
                lane.state = idle
        self._wake_one()

    # ------------------------------------------------------------ questions

    def running(self, epochs: Iterable[Epoch] | None = None) -> int:
        """
        Return how many records handlers work on, of all epochs or of these.
        """
        if epochs is None:
            return self._held.running
        return sum(epoch.running for epoch in epochs)

    def has_waiting(self, epoch: Epoch) -> bool:
        """
        Tell whether a failed record keeps a lane of the epoch waiting.
        """
        return bool(epoch.stuck or epoch.failures or epoch.answers)

    def is_starving(self, epoch: Epoch | None) -> bool:
        """
        Tell whether nothing of the epoch is, or could be, worked on now.
        """
        if epoch is None or not epoch.records:
            return True
        with self._held.lock:
            return not any(
                lane.state in _MOVING  # type: ignore[attr-defined]  # lanes are Lanes
                for lane in epoch.lanes.values()
            )


def _parts(outcome: Outcome) -> Iterator[Outcome]:
    # What became of a bundle, lane by lane; what is finished is counted already.
    failed, left = dict(outcome.failed), set(outcome.left)
    task = outcome.task
    for lane, indexes in task.bundle:
        part = Task(lane, task.chunk, indexes)
        if not failed and not left:
            yield Outcome(task=part)
            continue
        yield Outcome(
            task=part,
            failed=[(index, failed[index]) for index in indexes if index in failed],
            left=[index for index in indexes if index in left],
            is_suspect=outcome.is_suspect,
        )
