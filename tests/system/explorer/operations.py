"""The operations that are paired, in one table: what each needs, does and may raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kafka.errors as kafka_errors
from attrs import frozen

from safeconsumer.errors import ConcurrentPollError
from tests.system.explorer.broker import ONE, THREE, TOPIC, TWO
from tests.system.explorer.subject import (
    ALONE,
    GROUP,
    MANUAL,
    OTHER_TOPIC,
    Stage,
)

ALL_MODES = frozenset({MANUAL, GROUP, ALONE})
IN_GROUP = frozenset({GROUP})
BY_HAND = frozenset({MANUAL})
APART = frozenset({ALONE})
COMMITTING = frozenset({MANUAL, GROUP})

# What is prepared first: requests that are to stay open, then data and holds, then
# commits in flight, then joins, which nothing but reading works in.
FIRST, NORMAL, COMMITS, JOINS = range(4)

# Who runs it: the polling thread, any thread, the IO thread, or time itself.
POLLING, ANY, IO, TIME = "polling", "any", "io", "time"


Run = Callable[[Stage], object]


def _nothing(_: Stage) -> None: ...


@frozen
class Operation:
    """
    One operation.

    Attributes:
        name: as it is asked for on the command line.
        run: does it.
        prepare: makes what it needs, before either operation begins.
        order: whose preparation comes first: of those with the lowest number.
        modes: in which modes it makes sense.
        thread: who runs it.
        in_handler: whether it may be called in a signal handler.
        may_raise: what is documented that it may raise.
        if_moved: what it may raise besides if the application, by the other operation,
            changes what is consumed.
        moves: whether it changes what is consumed.
        is_cooperative: whether it needs a group that rebalances in steps.
        commits: whether it commits what it finds, on its own thread: two at once may
            cross, as upstream's do.
        comes_in: whether it comes in between as well; one of many like it need not.
    """

    name: str
    run: Run
    prepare: Run = _nothing
    order: int = NORMAL
    modes: frozenset[str] = ALL_MODES
    thread: str = ANY
    in_handler: bool = False
    may_raise: tuple[type[BaseException], ...] = ()
    if_moved: tuple[type[BaseException], ...] = ()
    moves: bool = False
    is_cooperative: bool = False
    commits: bool = False
    comes_in: bool = True


# ---------------------------------------------------------------- preparations


def _data(stage: Stage) -> None:
    stage.answer(
        one for one in stage.broker.of("Fetch") if one not in stage.broker.kept
    )


def _half_read(stage: Stage) -> None:
    _data(stage)
    stage.poll(0, 2)


def _parked(stage: Stage) -> None:
    # Parked by a poll, and free again: the next one finds it.
    stage.pause(ONE, owner="parking")
    _data(stage)
    stage.poll(0)
    stage.resume(ONE, owner="parking")


def _stepped(stage: Stage) -> None:
    _data(stage)
    stage.step()
    stage.step()


def _held(stage: Stage) -> None:
    stage.pause(ONE)


def _all_held(stage: Stage) -> None:
    stage.pause_all()


def _expiring(stage: Stage) -> None:
    stage.pause(ONE, owner="expiring", for_=30)


def _both_held(stage: Stage) -> None:
    stage.pause(ONE, TWO)


def _rejoining(stage: Stage) -> None:
    stage.ask_to_rejoin(ONE, THREE)


def _joined(stage: Stage) -> None:
    # JoinGroup and SyncGroup are answered; a poll is to apply it.
    _rejoining(stage)
    stage.poll(0)
    _answer_join(stage)


def _answer_join(stage: Stage) -> None:
    stage.answer(stage.broker.of("JoinGroup"))
    stage.answer(stage.broker.of("SyncGroup"))


def _asked_to_join(stage: Stage) -> None:
    _rejoining(stage)
    stage.poll(0)
    stage.broker.keep(stage.broker.of("JoinGroup"))


def _expelled(stage: Stage) -> None:
    stage.poll(0, 2)
    _lose(stage)


def _lost_and_back(stage: Stage) -> None:
    # A poll is to apply a join that gives back what was lost.
    _expelled(stage)
    stage.poll(0)
    _answer_join(stage)


def _rewinding(stage: Stage) -> None:
    # The beginning is being asked for.
    _seek_back(stage)
    stage.poll(0)
    _keep("ListOffsets")(stage)


def _committing(stage: Stage) -> None:
    stage.consumer.commit_async()
    _keep("OffsetCommit")(stage)


def _offsets_asked(stage: Stage) -> None:
    # A join has brought a partition whose committed offset is being asked for.
    stage.broker.committed[THREE] = 3
    stage.ask_to_rejoin(ONE, TWO, THREE)
    stage.poll(0)
    _answer_join(stage)
    stage.poll(0)
    _keep("OffsetFetch")(stage)


# ---------------------------------------------------------------- reading


def _poll(stage: Stage) -> object:
    return stage.poll(0)


def _poll_two(stage: Stage) -> object:
    return stage.poll(0, 2)


def _poll_waiting(stage: Stage) -> object:
    return stage.poll(40)


def _step(stage: Stage) -> object:
    return stage.step()


# ---------------------------------------------------------------- holds


def _pause(stage: Stage) -> None:
    stage.pause(ONE)


def _pause_resume(stage: Stage) -> None:
    stage.pause(ONE)
    stage.resume(ONE)


def _pause_resume_other(stage: Stage) -> None:
    stage.pause(TOPIC, owner="x")
    stage.resume(TOPIC, owner="x")


def _all_and_back(stage: Stage) -> None:
    stage.pause_all()
    stage.resume_all()


def _resume(stage: Stage) -> None:
    stage.resume(ONE)


def _resume_both(stage: Stage) -> None:
    stage.resume(ONE, TWO)


def _resume_all(stage: Stage) -> None:
    stage.resume_all()


def _block(stage: Stage) -> None:
    began = stage.tick()
    try:
        with stage.consumer.held(ONE, owner="block"):
            stage.note_held(frozenset({ONE}), "block", began)
            stage.consumer.explain(ONE)
            began = stage.tick()
    finally:
        stage.note_lifted(frozenset({ONE}), "block", began)


def _ask(stage: Stage) -> object:
    consumer = stage.consumer
    asked = consumer.assignment(), consumer.subscription(), consumer.paused()
    return asked, consumer.holds(), consumer.explain(ONE)


# ---------------------------------------------------------------- positions, commits


def _seek(stage: Stage) -> None:
    stage.seek(ONE, 4)


def _pause_seek(stage: Stage) -> None:
    stage.pause(ONE)
    stage.seek(ONE, 4)


def _seek_back(stage: Stage) -> None:
    began = stage.tick()
    stage.consumer.seek_to_beginning(ONE)
    stage.note_start(ONE, 0, began, "seek_to_beginning")


def _position(stage: Stage) -> object:
    return stage.consumer.position(ONE, timeout_ms=5)


def _commit(stage: Stage) -> None:
    stage.consumer.commit(timeout_ms=50)


def _commit_async(stage: Stage) -> None:
    stage.consumer.commit_async()


def _pause_commit(stage: Stage) -> None:
    stage.pause(ONE)
    stage.consumer.commit(timeout_ms=50)


# ---------------------------------------------------------------- what is consumed


def _subscribe_more(stage: Stage) -> None:
    stage.consumer.subscribe([TOPIC, OTHER_TOPIC])


def _unsubscribe(stage: Stage) -> None:
    stage.consumer.unsubscribe()


def _assign_other(stage: Stage) -> None:
    stage.consumer.assign([TWO, THREE])


def _assign_and_back(stage: Stage) -> None:
    stage.consumer.assign([TWO])
    stage.consumer.assign([ONE, TWO])


def _close(stage: Stage) -> None:
    stage.close()


# ---------------------------------------------------------------- the IO thread


def _answer(api: str, tp: Any = None) -> Callable[[Stage], None]:  # noqa: ANN401 - a partition
    def answer(stage: Stage) -> None:
        stage.answer(stage.broker.of(api, tp))

    return answer


def _keep(api: str, tp: Any = None) -> Callable[[Stage], None]:  # noqa: ANN401 - a partition
    def keep(stage: Stage) -> None:
        found = stage.broker.of(api, tp)
        assert found, f"no {api} to keep"
        stage.broker.keep(found)

    return keep


def _lose(stage: Stage) -> None:
    stage.expel()
    stage.broker.plan = (ONE, TWO)


def _taken(stage: Stage) -> None:
    stage.have_partitions(1, 2)


def _taken_and_back(stage: Stage) -> None:
    stage.have_partitions(1)
    stage.have_partitions(0, 1)


def _expire(stage: Stage) -> None:
    stage.expire()
    stage.consumer.paused()


_GONE = (kafka_errors.IllegalStateError, ValueError)
_COMMITS = (
    kafka_errors.CommitFailedError,
    kafka_errors.RebalanceInProgressError,
    kafka_errors.KafkaTimeoutError,
    kafka_errors.UnknownMemberIdError,
    kafka_errors.IllegalGenerationError,
)


def _reading(name: str, run: Run, prepare: Run = _nothing, **more: Any) -> Operation:  # noqa: ANN401
    return Operation(
        name,
        run,
        prepare,
        thread=POLLING,
        may_raise=(ConcurrentPollError,),
        # The application took away what is polled; the group never surprises it so.
        if_moved=(kafka_errors.IllegalStateError,),
        **more,
    )


def _joining(name: str, run: Run, prepare: Run, **more: Any) -> Operation:  # noqa: ANN401
    return _reading(name, run, prepare, modes=IN_GROUP, moves=True, order=JOINS, **more)


def _call(name: str, run: Run, prepare: Run = _nothing, **more: Any) -> Operation:  # noqa: ANN401
    return Operation(name, run, prepare, if_moved=_GONE, **more)


def _answering(name: str, run: Run, prepare: Run, **more: Any) -> Operation:  # noqa: ANN401
    how = {"order": FIRST, **more}
    return Operation(name, run, prepare, thread=IO, if_moved=_GONE, **how)


OPERATIONS = (
    _reading("poll", _poll, _data),
    _reading("poll(2)", _poll_two, _data, comes_in=False),
    _reading("poll half-read", _poll, _half_read, comes_in=False),
    _reading("poll parked", _poll, _parked, comes_in=False),
    _reading("poll waiting", _poll_waiting),
    _reading("poll to the beginning", _poll_waiting, _seek_back, comes_in=False),
    _reading("step", _step, _data),
    _reading("step on", _step, _stepped),
    # joining
    _joining("join prepared", _poll, _rejoining),
    _joining("join completed", _poll, _joined),
    _joining("join whole", _poll_waiting, _rejoining),
    _joining(
        "join cooperatively",
        _poll_waiting,
        _rejoining,
        is_cooperative=True,
    ),
    _joining("join after loss", _poll_waiting, _expelled),
    _joining("lost and back", _poll_waiting, _lost_and_back),
    # holds
    _call("pause", _pause, in_handler=True),
    _call("pause, resume", _pause_resume, in_handler=True),
    _call("pause, resume topic", _pause_resume_other),
    _call("pause_all, resume_all", _all_and_back, in_handler=True),
    _call("resume", _resume, _held, in_handler=True),
    _call("resume both", _resume_both, _both_held, in_handler=True),
    _call(
        "resume(*assignment())",
        Stage.resume_assigned,
        Stage.pause_assigned,
        in_handler=True,
    ),
    _call("resume_all", _resume_all, _all_held),
    _call("held", _block, in_handler=True),
    _call("pause(*assignment())", Stage.pause_assigned, in_handler=True),
    _call("questions", _ask, in_handler=True),
    Operation("expiry", _expire, _expiring, thread=TIME),
    # positions and commits
    _call("seek", _seek),
    _call("pause, seek", _pause_seek),
    _call("seek_to_beginning", _seek_back),
    _call("position", _position),
    _call("commit", _commit, modes=COMMITTING, may_raise=_COMMITS, commits=True),
    _call("commit_async", _commit_async, modes=COMMITTING, commits=True),
    _call(
        "pause, commit",
        _pause_commit,
        modes=COMMITTING,
        may_raise=_COMMITS,
        commits=True,
    ),
    # what is consumed
    _call("subscribe to more", _subscribe_more, modes=IN_GROUP, moves=True),
    _call("unsubscribe", _unsubscribe, moves=True),
    _call("assign", _assign_other, modes=BY_HAND, moves=True),
    _call("assign and back", _assign_and_back, modes=BY_HAND, moves=True),
    _call("close", _close, moves=True, in_handler=True),
    # the IO thread
    _answering("answer to Fetch", _answer("Fetch", ONE), _keep("Fetch", ONE)),
    _answering("answer to ListOffsets", _answer("ListOffsets"), _rewinding),
    _answering(
        "answer to OffsetFetch",
        _answer("OffsetFetch"),
        _offsets_asked,
        modes=IN_GROUP,
        order=JOINS,
    ),
    _answering(
        "answer to a commit",
        _answer("OffsetCommit"),
        _committing,
        modes=COMMITTING,
        order=COMMITS,
    ),
    _answering(
        "answers to a join", _answer_join, _asked_to_join, modes=IN_GROUP, order=JOINS
    ),
    _answering("loss", _lose, _nothing, modes=IN_GROUP, moves=True),
    _answering("told to rejoin", _rejoining, _nothing, modes=IN_GROUP),
    _answering("partition taken", _taken, _nothing, modes=APART, moves=True),
    _answering("taken and back", _taken_and_back, _nothing, modes=APART, moves=True),
)

BY_NAME = {one.name: one for one in OPERATIONS}
