"""Defines situations in which partitions are paused with kafka-python's own calls."""

from safeconsumer.demo.stage import PARTITIONS, Program, Stage
from safeconsumer.testing.ghost import is_settled

# The number of records written to each partition before the pause, and again during it;
# and the number of records read before the pause.
RECORDS = 50
READ_FIRST = 60

# This is longer than any poll of a joined member, but the program is busy for even
# longer.
_MAX_POLL_INTERVAL_MS = 1500


def ticket_loop(stage: Stage) -> None:
    """Pause the whole assignment before every single poll (KAFKA-13463)."""
    program = _reading(stage)

    def pause() -> None:
        program.consumer.pause(*program.consumer.assignment())

    program.before_poll = pause
    pause()
    stage.tally.paused()
    stage.produce(RECORDS)
    # The group rebalances twice, because records leak only in a long poll that gains
    # partitions.
    _rebalance(stage, program)
    _rebalance(stage, program)
    program.before_poll = lambda: None
    _resume(stage, program)


def flag(stage: Stage) -> None:
    """Pause the assignment once and resume it once, as programs with a pause flag do."""
    program = _reading(stage)
    program.consumer.pause(*program.consumer.assignment())
    stage.tally.paused()
    stage.produce(RECORDS)
    _rebalance(stage, program)
    _resume(stage, program)


def mid_batch(stage: Stage) -> None:
    """Pause each partition after its first records, then resume all, without a rebalance."""
    stage.produce(2 * RECORDS)
    program = stage.program()
    program.before_poll = lambda: program.consumer.pause(*stage.tally.begun)
    program.read_of_each()
    program.before_poll()
    stage.say("paused, each partition after its first records")
    stage.tally.paused()
    program.before_poll = lambda: None
    program.linger()
    _resume(stage, program)


def lost_membership(stage: Stage) -> None:
    """Stop polling for longer than max.poll.interval.ms, and then poll again."""
    program = _reading(stage, max_poll_interval_ms=_MAX_POLL_INTERVAL_MS)
    program.consumer.pause(*program.consumer.assignment())
    stage.tally.paused()
    stage.produce(RECORDS)
    before = program.group_metadata().generation_id
    stage.say("paused; too busy to poll, the member is evicted")
    stage.rest(_MAX_POLL_INTERVAL_MS / 1000 + 0.5)
    stage.say("paused; the member polls and joins again")
    program.until(
        lambda: (
            is_settled(program)
            and program.group_metadata().generation_id > before
            and program.owns(PARTITIONS)
        ),
        "the group to take it back",
    )
    program.linger()
    _resume(stage, program)


def _reading(stage: Stage, **configs: int) -> Program:
    stage.produce(RECORDS)
    program = stage.program(**configs)
    program.read(READ_FIRST)
    return program


def _rebalance(stage: Stage, program: Program) -> None:
    ghost = stage.ghost(program)
    stage.say("paused; another member joins")
    ghost.join()
    stage.say("paused; the other member leaves again")
    ghost.leave()
    program.until(lambda: program.owns(PARTITIONS), "all partitions to be back")
    program.linger()


def _resume(stage: Stage, program: Program) -> None:
    stage.say("resumed")
    stage.tally.resumed()
    program.consumer.resume(*program.consumer.assignment())
    program.drain()
