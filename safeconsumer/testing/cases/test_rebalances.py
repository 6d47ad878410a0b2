"""Tests that a group member's pauses survive rebalances."""

from safeconsumer.testing.cases.consumer import JOINING, Condition, reaches, until
from safeconsumer.testing.cases.lab import Lab
from safeconsumer.testing.cases.outcomes import expect
from safeconsumer.testing.cases.process import ClientError
from safeconsumer.testing.cases.quiet import note
from safeconsumer.testing.cases.team import Team, team

PART = "Over rebalances"


def test_still_paused_when_a_member_joins(lab: Lab) -> None:
    """
    When another member joins, the partitions that a member keeps stay paused.

    kafka-python 3.0 passes, as does confluent-kafka. kafka-python 2.3 and aiokafka
    forget the pause, because an eager assignor revokes all partitions in a rebalance.
    """
    here = team(lab)
    paused = here.pause()
    lab.produce(here.witness, 300)
    here.reads_one_more()  # the rest of the 300 records stays in the buffer
    here.joined(limit=1)
    here.beat()
    paused.prove(here.mine())


def test_still_paused_when_a_member_dies(lab: Lab) -> None:
    """
    When another member dies, the partitions that a member had paused stay paused.

    kafka-python 3.0 passes, as does confluent-kafka. kafka-python 2.3 and aiokafka
    forget the pause, because an eager assignor revokes all partitions in a rebalance.
    """
    here = team(lab, each=0)
    other = here.joined()
    paused = here.pause(here.mine())
    lab.produce(here.tps, 20)
    other.process.kill()
    here.regain()
    here.beat()
    paused.prove()


def test_still_paused_when_partitions_are_added(lab: Lab) -> None:
    """
    When partitions are added to a topic, the old ones stay paused; new ones are read.

    kafka-python 3.0 passes, as does confluent-kafka. kafka-python 2.3 and aiokafka
    forget the pause, because an eager assignor revokes all partitions in a rebalance.
    """
    here = team(lab)
    paused = here.pause(how="named")
    added = lab.add_partition(here.tps)
    here.consumer.owns({*here.tps, added, here.witness}, "the new partition")
    lab.beat(here.consumer, added)
    paused.prove()


def test_paused_partition_moves_and_returns(lab: Lab) -> None:
    """
    A paused partition that moves to another member and back is still paused.

    kafka-python (3.0, 2.3) and aiokafka forget the pause, as documented for the Java
    client. confluent-kafka passes.
    """
    here = team(lab)
    paused = here.pause()
    other = here.joined()
    theirs = set(here.tps) - here.mine()
    here.dismiss(other)
    here.beat()
    paused.prove(theirs)


def test_another_member_reads_further_in_the_meantime(lab: Lab) -> None:
    """
    A paused partition that returns continues where the other member has committed.

    The other member has read more records, and the partition stays paused until the
    program resumes it.

    kafka-python (3.0, 2.3) and aiokafka forget the pause, as documented for the Java
    client. confluent-kafka passes.
    """
    here = team(lab, each=300, auto_commit=True)
    here.reads_one_more()
    paused = here.pause()  # the other records stay in the buffers
    other = here.joined()
    paused.expect_nothing()  # ``other`` must read these records
    theirs = set(here.tps) - here.mine()
    lasts = {(tp, lab.end(tp) - 1) for tp in theirs}
    until(
        [here.consumer, other],
        lambda: lasts <= set(other.log),
        "the other member reads to the end",
    )
    for tp in theirs:
        skipped = set(range(paused.taken[tp], lab.end(tp))) - set(other.offsets(tp))
        expect(not skipped, f"{len(skipped)} records came to neither of them")
    other.commit()
    here.dismiss(other)
    for tp in theirs:
        paused.taken[tp] = lab.end(tp)
    lab.produce(theirs, 20)
    here.beat()
    paused.prove()


def test_paused_before_each_poll(lab: Lab) -> None:
    """
    A program that pauses its assignment before each poll gets no records (KAFKA-13463).

    The partitions continue at the next record once they are resumed.

    kafka-python (3.0, 2.3) and aiokafka deliver records from partitions that are
    assigned during a poll(), because these were not assigned yet when the loop paused.
    confluent-kafka passes.
    """
    here = team(lab)
    start = note(lab, here.consumer, here.tps)
    everything = set(here.tps)
    for _ in range(2):
        other = lab.consumer(here.group)
        other.subscribe(here.topic)
        shared = _pausing(here, here.is_shared_with(other))
        until([here.consumer, other], shared, "the topic is shared", timeout=JOINING)
        other.begin_close()
        closed = _pausing(here, other.process.has_answered)
        until([here.consumer], closed, "the other member is closed", timeout=JOINING)
        other.end_close()
        back = _pausing(here, lambda: here.mine() == everything)
        until([here.consumer], back, "everything is back", timeout=JOINING)
        here.beat()
    start.prove()


def _pausing(here: Team, condition: Condition) -> Condition:
    # Pause inside the condition, because a condition is checked before each poll.
    def paused_and_asked() -> object:
        here.consumer.pause(here.mine())
        return condition()

    return paused_and_asked


def test_paused_by_the_listener(lab: Lab) -> None:
    """
    Partitions that a rebalance listener pauses when they are assigned stay quiet.

    kafka-python 3.0 passes, as do 2.3, aiokafka and confluent-kafka.
    """
    tps = lab.topic_with(20, partitions=4)
    consumer = lab.consumer(lab.name("g"), pause_on_assign=True)
    start = note(lab, consumer, tps)
    consumer.subscribe(tps[0].topic)
    until(
        [consumer],
        lambda: consumer.assignment() == set(tps),
        "the assignment",
        timeout=JOINING,
    )
    start.prove()


def test_pausing_the_rest_while_another_owner_pauses_a_partition(lab: Lab) -> None:
    """
    pause(*(assignment() - paused())) works if another owner has paused a partition.

    Partitions that are reassigned and come back stay paused, as they do without the
    other owner.

    kafka-python (3.0, 2.3) and aiokafka, in which pauses have no owners, forget the
    pause, as documented for the Java client. confluent-kafka has no paused().
    """
    here = team(lab)
    others = here.tps[0]
    here.consumer.pause_by_another([others])
    here.consumer.pause_the_rest(here.topic)
    paused = note(lab, here.consumer, here.tps)
    other = here.joined()
    theirs = set(here.tps) - here.mine()
    here.dismiss(other)
    here.beat()
    paused.expect_nothing()
    paused.prove(theirs - {others})


def test_pausing_the_rest_while_another_owner_pauses_the_topic(lab: Lab) -> None:
    """
    pause(*(assignment() - paused())) works if another owner has paused the topic.

    When the other owner's pause ends, the program's own pause keeps the partitions
    quiet.

    kafka-python pauses only partitions, so the case is skipped for it.
    """
    here = team(lab)
    here.consumer.pause_topic_by_another(here.topic)
    here.consumer.pause_the_rest(here.topic)
    paused = note(lab, here.consumer, here.tps)
    here.dismiss(here.joined())
    here.consumer.resume_topic_by_another(here.topic)
    here.beat()
    paused.prove()


def test_listener_pauses_the_rest(lab: Lab) -> None:
    """
    Partitions stay quiet if a listener pauses new partitions that are not in paused().

    kafka-python 3.0 passes, as do kafka-python 2.3 and aiokafka. confluent-kafka has no
    paused().
    """
    tps = lab.topic_with(20, partitions=4)
    (witness,) = lab.topic(1)
    group = lab.name("g")
    consumer = lab.consumer(group, pause_the_rest_on_assign=True)
    here = Team(lab=lab, group=group, tps=tps, witness=witness, consumer=consumer)
    start = note(lab, consumer, tps)
    consumer.subscribe(here.topic, witness.topic)
    here.regain()
    here.dismiss(here.joined())
    start.prove()


def test_paused_before_the_first_poll(lab: Lab) -> None:
    """
    A pause between subscribe() and the first poll takes effect, or is refused.

    kafka-python 3.0 and 2.3 raise a bare KeyError, and aiokafka a bare AssertionError.
    confluent-kafka accepts the pause and forgets it.
    """
    tps = lab.topic_with(20, partitions=4)
    consumer = lab.consumer(lab.name("g"))
    start = note(lab, consumer, tps[:2])
    consumer.subscribe(tps[0].topic)
    try:
        consumer.pause(tps[:2])
    except ClientError as error:
        expect(error.is_own, error.kind)
        return
    until(
        [consumer],
        lambda: consumer.assignment() == set(tps),
        "the assignment",
        timeout=JOINING,
    )
    lab.beat(consumer, tps[2])
    start.prove()


def test_paused_returns_only_quiet_partitions(lab: Lab) -> None:
    """
    paused() returns the partitions that the program has paused, and no others.

    kafka-python 3.0 passes, as do kafka-python 2.3 and aiokafka. confluent-kafka has no
    paused().
    """
    here = team(lab, each=0, taking=0)
    paused = here.pause()
    expect(here.consumer.paused() == set(here.tps), "not all of it, once paused")
    here.joined()
    mine = here.mine()
    named = here.consumer.paused()
    away = named - mine
    expect(not away, f"{len(away)} are named that departed")
    lab.produce(mine, 1)
    here.beat()
    flowing = {tp for tp in mine if here.consumer.count([tp], paused.since)}
    expect(not named & flowing, f"{len(named & flowing)} of {len(named)} flow")
    others = mine - named
    flow = reaches([here.consumer], lambda: here.consumer.count(others) == len(others))
    expect(flow, "some are quiet and not named")


def test_paused_member_stays_a_member(lab: Lab) -> None:
    """
    A member whose partitions are all paused stays in its group while it polls.

    kafka-python 3.0 passes, as do 2.3, aiokafka and confluent-kafka.
    """
    here = team(lab, max_poll_interval=5.0)
    paused = here.pause()
    here.consumer.pause([here.witness])
    here.consumer.events()
    for _ in range(12):  # longer than the maximum poll interval
        here.consumer.poll(0.5)
    happened = here.consumer.events()
    expect(not happened, f"{', '.join(happened)} while nothing happened")
    here.consumer.resume([here.witness])
    here.beat()
    paused.prove()


def test_commit_while_paused(lab: Lab) -> None:
    """
    commit() during a pause commits the delivered records, not the buffered ones.

    kafka-python 3.0 passes, as do 2.3, aiokafka and confluent-kafka.
    """
    here = team(lab, each=300)
    here.reads_one_more()
    paused = here.pause()
    here.beat()
    here.consumer.commit()
    delivered = paused.taken
    committed = {tp: here.consumer.committed(tp) for tp in here.tps}
    expect(committed == delivered, f"{committed} instead of {delivered}")


def test_closed_while_paused(lab: Lab) -> None:
    """
    After a paused consumer is closed, its successor continues at the next record.

    kafka-python 3.0 passes, as do 2.3, aiokafka and confluent-kafka.
    """
    here = team(lab, each=300, auto_commit=True)
    here.reads_one_more()
    paused = here.pause()
    here.beat()
    here.consumer.close()
    successor = lab.consumer(here.group)
    successor.subscribe(here.topic)
    until(
        [successor],
        lambda: successor.assignment() == set(here.tps),
        "the successor owns everything",
        timeout=JOINING,
    )
    for tp in here.tps:
        # When this record arrives, all earlier records of the partition have been read.
        lab.beat(successor, tp, times=1)
        came = successor.offsets(tp)
        expect(
            came == list(range(paused.taken[tp], lab.end(tp))),
            f"went on at {came[0]} instead of {paused.taken[tp]}",
        )
