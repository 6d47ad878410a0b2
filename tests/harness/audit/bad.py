"""
For each promise a fleet that keeps all others and breaks this one, and good fleets.

A bad one has the name of the check that rejects it in front; any other is a good one.
"""

import re
from collections.abc import Callable
from types import FunctionType

from tests.harness.audit.control import Operator
from tests.harness.audit.telling import Telling

Fleet = list[Telling]
TP = "orders:0"
_IS_OF_A_CHECK = re.compile(r"[agw]\d")


def a1() -> Fleet:
    # A record is delivered after pause() has returned.
    told = Telling().assigned(TP).poll(TP, 0, 5).pause("orders", owner="alice")
    return [told.poll(TP, 5, 7)]


def a1_after_a_rebalance() -> Fleet:
    # The pause is forgotten when the partition comes back.
    told = Telling().assigned(TP).poll(TP, 0, 5).pause("re:ord.*")
    return [told.revoked(TP).assigned(TP, generation=2).poll(TP, 5, 7)]


def a1_wrong_owner() -> Fleet:
    # Somebody else's resume lifts the hold.
    told = Telling().assigned(TP).pause("orders", owner="alice")
    return [told.resume("orders", owner="bob").poll(TP, 0, 2)]


def a1_after_a_resume_that_failed() -> Fleet:
    # It raised: nothing was lifted (P4).
    told = Telling().assigned(TP).pause("orders").resume("orders", ok=False)
    return [told.poll(TP, 0, 2)]


def a1_gained_after_a_resume_that_failed() -> Fleet:
    # The partition is heard of only later.
    told = Telling().pause("orders").resume("orders", ok=False)
    return [told.assigned(TP).poll(TP, 0, 2)]


def a1_placed_again() -> Fleet:
    # An earlier hold's end, written down late, does not end the next one.
    told = Telling().assigned(TP).pause("orders")
    since = told.at + 0.01
    told.pause("orders").then("lift", scope="orders", owner="app", since=since)
    return [told.poll(TP, 0, 2)]


def _paused_again_in_a_poll(*scopes: str) -> Fleet:
    # As listeners do: what was held before the poll was called is delivered by it.
    told = Telling().assigned(TP)
    back = {"assigned": [TP], "paused": [TP]}
    told.pause(*scopes, **back).polls()
    told.revoked(TP).assigned(TP, generation=2).pause(*scopes, **back)
    told.pause(*scopes, **back)
    return [told.deliver(TP, 0, 2)]


def a1_paused_again_in_the_poll() -> Fleet:
    # Placing it again takes nothing from the hold that stood.
    return _paused_again_in_a_poll("orders")


def a1_partition_paused_again_in_the_poll() -> Fleet:
    # So it is with a hold that might have ended with its ownership, and has not.
    return _paused_again_in_a_poll(TP)


def a1_gained_after_it_was_paused_again() -> Fleet:
    # So it is with a partition that is named for the first time after both.
    told = Telling().pause("orders", assigned=[], paused=[])
    told.polls().pause("orders", assigned=[], paused=[])
    told.assigned(TP)
    return [told.deliver(TP, 0, 2)]


def a1_paused_again_in_the_step() -> Fleet:
    # The same in an iteration, whose steps write no calls.
    told = Telling().assigned(TP).pause("orders", assigned=[TP], paused=[TP])
    after = len(told.lines) - 1
    told.pause("orders", assigned=[TP], paused=[TP])
    return [told.deliver(TP, 0, 1, after=after, asked=told.at)]


def a1_of_an_operator() -> Fleet:
    # What an operator holds is delivered.
    told = Telling().assigned(TP).then("hold", scope="orders", owner="operator:eve")
    return [told.poll(TP, 0, 2)]


def a1_expired_too_early() -> Fleet:
    # The consumer says that a hold is over, before its time.
    told = Telling().assigned(TP)
    told.call("pause", scopes=["orders"], owner="app", until=told.at + 9)
    told.then("lift", scope="orders", owner="app", since=told.at, why="expired")
    return [told.poll(TP, 0, 2)]


def a1_ended_by_a_rebalance() -> Fleet:
    # The consumer says that a hold ended with an ownership, which it was not for.
    told = Telling().assigned(TP)
    told.call("pause", scopes=["orders"], owner="app", lifetime="until_resumed")
    since = told.revoked(TP).at
    told.then("lift", scope="orders", owner="app", since=since, why="ended")
    return [told.assigned(TP, generation=2).poll(TP, 0, 2)]


def a2() -> Fleet:
    # The next owner skips what nobody has delivered.
    one = Telling("a").assigned(TP).poll(TP, 0, 5).revoked(TP)
    return [one, Telling("b", at=2000).assigned(TP, generation=2).poll(TP, 8, 9)]


def a2_acknowledged() -> Fleet:
    # A producer's record lies in what was passed over.
    producer = Telling("producer").then("acked", tp=TP, first=0, last=9)
    one = Telling("a").assigned(TP).poll(TP, 0, 4).revoked(TP)
    two = Telling("b", at=2000).assigned(TP, generation=2).poll(TP, 6, 10)
    return [producer, one, two]


def a2_within_an_ownership() -> Fleet:
    # A record is skipped between two polls; the position went on as if it were none.
    producer = Telling("producer").then("acked", tp=TP, first=0, last=9)
    told = Telling().assigned(TP).poll(TP, 0, 5)
    return [producer, told.deliver(TP, 5, 10, first=7, count=3)]


def a2_within_a_poll() -> Fleet:
    # A record is left out in the middle of what one poll returned.
    producer = Telling("producer").then("acked", tp=TP, first=0, last=9)
    return [producer, Telling().assigned(TP).deliver(TP, 0, 10, count=9, gaps=[[4, 5]])]


def a2_moved_over() -> Fleet:
    # A record is passed over and committed as a marker would be.
    producer = Telling("producer").then("acked", tp=TP, first=0, last=9)
    told = Telling().assigned(TP).poll(TP, 0, 5)
    told.then("moved", tp=TP, from_=5, next=7).commit(TP, 7)
    return [producer, told.poll(TP, 7, 10)]


def a2_moved_over_and_committed() -> Fleet:
    # So it is, though nothing comes after it.
    producer = Telling("producer").then("acked", tp=TP, first=0, last=9)
    told = Telling().assigned(TP).poll(TP, 0, 5)
    return [producer, told.then("moved", tp=TP, from_=5, next=10).commit(TP, 10)]


def a2_passed_over_and_committed() -> Fleet:
    # By the position after a poll.
    producer = Telling("producer").then("acked", tp=TP, first=0, last=9)
    return [
        producer,
        Telling().assigned(TP).deliver(TP, 0, 10, last=4, count=5).commit(TP, 10),
    ]


def a2_before_what_came_first() -> Fleet:
    # The first poll of all begins behind where its ownership stood.
    producer = Telling("producer").then("acked", tp=TP, first=0, last=9)
    told = Telling().assigned(TP).then("begins", tp=TP, offset=0)
    return [producer, told.deliver(TP, 0, 10, first=5, count=5)]


def a2_moved_over_everything() -> Fleet:
    # Nothing came at all, and the group goes on behind it.
    producer = Telling("producer").then("acked", tp=TP, first=0, last=9)
    told = Telling().assigned(TP).then("begins", tp=TP, offset=0)
    return [producer, told.then("moved", tp=TP, from_=0, next=10).commit(TP, 10)]


def a3() -> Fleet:
    # A gap within one ownership, delivered by another member later.
    one = Telling("a").assigned(TP).poll(TP, 0, 5).poll(TP, 7, 9).revoked(TP)
    return [one, Telling("b", at=2000).assigned(TP).poll(TP, 5, 9)]


def a3_not_owned() -> Fleet:
    # A record after the partition was revoked.
    told = Telling().assigned(TP).poll(TP, 0, 5).revoked(TP, generation=2)
    return [told.poll(TP, 5, 6)]


def a4() -> Fleet:
    # The position goes back without a seek.
    return [Telling().assigned(TP).poll(TP, 0, 5).poll(TP, 3, 6)]


def a4_beyond_what_a_later_generation_committed() -> Fleet:
    return _positioned_late(10)


def a4_after_the_commit() -> Fleet:
    # An ownership begins later than what was committed.
    one = Telling("a").assigned(TP).poll(TP, 0, 9).commit(TP, 5).revoked(TP)
    return [one, Telling("b", at=2000).assigned(TP, generation=2).poll(TP, 9, 12)]


def a4_kept_through_a_loss() -> Fleet:
    # It goes on where it was, though membership was lost and work on it dropped.
    told = Telling().assigned(TP).poll(TP, 0, 9).commit(TP, 5)
    told.then("lost", partitions=[TP], generation=-1)
    return [told.assigned(TP, generation=3).poll(TP, 9, 12)]


def a4_though_another_had_it_between() -> Fleet:
    # It goes on where it was, and the other one had no record.
    one = Telling("a").assigned(TP).poll(TP, 0, 9).commit(TP, 5).revoked(TP)
    two = Telling("b", at=2000).assigned(TP, generation=2).revoked(TP, generation=2)
    return [one.until(3000.0).assigned(TP, generation=3).poll(TP, 9, 12), two]


def a5() -> Fleet:
    # More is committed than was delivered.
    return [Telling().assigned(TP).poll(TP, 0, 5).commit(TP, 6)]


def a5_not_owned() -> Fleet:
    # Committed after the partition was revoked.
    return [Telling().assigned(TP).poll(TP, 0, 5).revoked(TP).commit(TP, 5)]


def a5_given_to_another() -> Fleet:
    # Committed after the generation that took it away, and gave it to somebody.
    one = Telling("a").assigned(TP).poll(TP, 0, 5).revoked(TP, generation=2)
    two = Telling("b", at=1000.25).assigned(TP, generation=2)
    return [one.commit(TP, 5), two]


def a4_after_a_seek_that_failed() -> Fleet:
    # It goes back, and the seek is no excuse.
    told = Telling().assigned(TP).poll(TP, 0, 9)
    told.call("seek", {"ok": False}, offsets={TP: 3})
    return [told.poll(TP, 3, 12)]


def a4_off_its_seek() -> Fleet:
    # It was to go on at 3.
    told = Telling().assigned(TP).poll(TP, 0, 9).call("seek", offsets={TP: 3})
    return [told.poll(TP, 2, 12)]


def a5_backwards() -> Fleet:
    # Less is committed than was before.
    return [Telling().assigned(TP).poll(TP, 0, 9).commit(TP, 9).commit(TP, 3)]


def a5_below_the_one_before() -> Fleet:
    # The next owner takes back what was committed.
    one = Telling("a").assigned(TP).poll(TP, 0, 9).commit(TP, 9).revoked(TP)
    two = Telling("b", at=2000).assigned(TP, generation=2).poll(TP, 9, 12)
    return [one, two.commit(TP, 5)]


def a5_after_a_seek() -> Fleet:
    # A seek tells where it stands, and nothing came since.
    told = Telling().assigned(TP).poll(TP, 0, 5).call("seek", offsets={TP: 3})
    return [told.commit(TP, 5)]


def a5_before_anything_came() -> Fleet:
    # What is committed first lies beyond where reading began.
    told = Telling().assigned(TP).then("begins", tp=TP, offset=0)
    return [told.commit(TP, 5).poll(TP, 0, 5)]


def a5_beyond_its_begin() -> Fleet:
    # It says where it stands, and commits more.
    told = Telling().assigned(TP).then("begins", tp=TP, offset=0)
    return [told.commit(TP, 20)]


def a5_and_nothing_came() -> Fleet:
    # The next owner commits what nobody has delivered.
    one = Telling("a").assigned(TP).poll(TP, 0, 5).commit(TP, 5).revoked(TP)
    two = Telling("b", at=2000).assigned(TP, generation=2).commit(TP, 20)
    return [one, two]


def a6() -> Fleet:
    # What comes twice had been committed.
    one = Telling("a").assigned(TP).poll(TP, 0, 9).commit(TP, 9).revoked(TP)
    return [one, Telling("b", at=2000).assigned(TP, generation=2).poll(TP, 4, 12)]


def a6_by_hand_after_the_group() -> Fleet:
    # What it committed itself comes again, though no generation tells.
    told = Telling().assigned(TP, generation=3).poll(TP, 0, 9).commit(TP, 9)
    told.revoked(TP, generation=3).assigned(TP, generation=-1)
    return [told.poll(TP, 4, 12)]


def a6_and_a_seek_long_after() -> Fleet:
    # A seek excuses what comes after it.
    fleet = a6()
    fleet[1].call("seek", offsets={TP: 12})
    return fleet


def a6_and_a_seek_that_failed() -> Fleet:
    # Nothing moved.
    one = Telling("a").assigned(TP).poll(TP, 0, 9).commit(TP, 9).revoked(TP)
    two = Telling("b", at=2000).assigned(TP, generation=2)
    two.call("seek", {"ok": False}, offsets={TP: 4})
    return [one, two.poll(TP, 4, 12)]


def a6_after_a_missed_generation() -> Fleet:
    # It goes on where it was, though another member had it meanwhile.
    one = Telling("a").assigned(TP).poll(TP, 0, 5).commit(TP, 5).revoked(TP)
    two = Telling("b", at=2000).assigned(TP, generation=2).poll(TP, 5, 9)
    two.commit(TP, 9).revoked(TP, generation=2)
    return [one.until(3000.0).assigned(TP, generation=3).poll(TP, 5, 12), two]


def g2() -> Fleet:
    # A partition that was gained after the operator's hold delivers.
    operator = Operator().held(1500.1)
    one = Telling("a").assigned(TP).poll(TP, 0, 5).commit(TP, 5).revoked(TP)
    return [operator, one, Telling("b", at=2000).assigned(TP).poll(TP, 5, 6)]


def g2_peeked() -> Fleet:
    # What is to come again is delivered all the same.
    two = Telling("b", at=2000).assigned(TP).poll(TP, 0, 5, peek=True)
    return [Operator().held(1500.1), two]


def g2_peeked_and_polled_after_the_lift() -> Fleet:
    # That it comes again when it may does not excuse that it came before.
    two = Telling("b", at=2000).assigned(TP).poll(TP, 0, 5, peek=True)
    two.at = 6000.0
    return [Operator().held(1100.1, 5000.1), two.poll(TP, 0, 5)]


def g2_after_a_missed_generation() -> Fleet:
    # Another may have owned it between the two: that is a new ownership.
    told = Telling("a").assigned(TP).poll(TP, 0, 5).commit(TP, 5).revoked(TP)
    told.at = 2000.0
    return [
        Operator().held(1500.1),
        told.assigned(TP, generation=3).poll(TP, 5, 6),
    ]


def g2_after_a_loss() -> Fleet:
    # Regained is gained.
    told = Telling("a").assigned(TP).poll(TP, 0, 5).commit(TP, 5)
    told.then("lost", partitions=[TP], generation=1)
    told.at = 2000.0
    return [
        Operator().held(1500.1),
        told.assigned(TP, generation=2).poll(TP, 5, 6),
    ]


def g2_never_heard() -> Fleet:
    # An operator's hold never reaches who owned the partition before.
    told = Telling("a").assigned(TP).poll(TP, 0, 5)
    told.at = 2000.0
    return [Operator().held(1100.1), told.poll(TP, 5, 9)]


def g2_never_heard_when_given_back() -> Fleet:
    # A rebalance gives it back; the hold has had all the time there is.
    told = Telling("a").assigned(TP).poll(TP, 0, 5).revoked(TP)
    told.until(2000.0).assigned(TP, generation=2)
    return [Operator().held(1100.1), told.poll(TP, 5, 9)]


def g2_taken_for_lifted() -> Fleet:
    # It says so only after the delivery; the operator lifted it much later.
    told = Telling().assigned(TP).poll(TP, 0, 5)
    told.until(1102.5).then("hold", scope="orders", owner="operator:alice")
    told.until(1200.0).poll(TP, 5, 9)
    told.then("lift", scope="orders", owner="operator:alice", since=1110.0)
    return [Operator().held(1100.1, 5000.1), told]


def _worker(member: str = "a", at: float = 1000.0) -> Telling:
    return Telling(member, at=at).then("working", order="key")


def w4() -> Fleet:
    # More is committed than handlers are done with.
    told = _worker().assigned(TP).poll(TP, 0, 5).handle(TP, 0, 1, 2)
    return [told.commit(TP, 4)]


def w4_in_the_middle() -> Fleet:
    # The last record is done, one before it still runs.
    told = _worker().assigned(TP).poll(TP, 0, 3).begin(TP, 0, "=x")
    told.begin(TP, 1, "=y").begin(TP, 2, "=z").end(TP, 1, 2).commit(TP, 3)
    return [told.end(TP, 0)]


def w4_failed() -> Fleet:
    # A record failed, and is passed over.
    told = _worker().assigned(TP).poll(TP, 0, 2).begin(TP, 0, "=x")
    return [told.end(TP, 0, ok=False).begin(TP, 1, "=y").end(TP, 1).commit(TP, 2)]


def w4_before_its_letter_arrived() -> Fleet:
    # A dead letter is complete once it is acknowledged.
    told = _worker().assigned(TP).poll(TP, 0, 1).handle(TP, 0, ok=False)
    return [told.commit(TP, 1).complete(TP, 0, "dead-letter")]


def w4_by_an_earlier_ownership() -> Fleet:
    # What an old task finishes does not count for the ownership that has it again.
    told = _worker().assigned(TP).poll(TP, 0, 1).begin(TP, 0).revoked(TP)
    told.assigned(TP, generation=3).poll(TP, 0, 1).end(TP, 0)
    return [told.commit(TP, 1)]


def w4_in_the_generation_that_gave_it_back() -> Fleet:
    # The ownership went on, and so did what was not complete in it.
    told = _worker().assigned(TP).poll(TP, 0, 1).begin(TP, 0, "=x", epoch=1)
    told.revoked(TP).assigned(TP).poll(TP, 1, 2)
    told.begin(TP, 1, "=y", epoch=1).end(TP, 1)
    return [told.commit(TP, 2)]


def w4_by_hand_after_another_assignment() -> Fleet:
    # Without a group nobody knows who had the partition in between.
    told = _worker().assigned(TP, generation=-1).poll(TP, 0, 2).handle(TP, 0, 1)
    told.revoked(TP).assigned(TP, generation=-1).poll(TP, 0, 2)
    told.begin(TP, 0, epoch=2).end(TP, 0)
    return [told.commit(TP, 2)]


def w4_before_it_was_skipped() -> Fleet:
    # That a record was skipped is written before anything follows from it.
    told = _worker().assigned(TP).poll(TP, 0, 1).begin(TP, 0).end(TP, 0, ok=False)
    return [told.commit(TP, 1).complete(TP, 0, "skipped")]


def w4_of_a_batch() -> Fleet:
    # Of a batch one record failed, and all are committed.
    told = _worker().assigned(TP).poll(TP, 0, 3).begin_all(TP, 0, 1, 2)
    return [told.end(TP, 0, ok=False, done=[0, 2]).commit(TP, 3)]


def w4_given_back() -> Fleet:
    # What was delivered before a seek, and is not given up, is still to be handled.
    told = _worker().assigned(TP).poll(TP, 0, 6).begin(TP, 0, "=x")
    told.call("seek", offsets={TP: 3}).poll(TP, 3, 6).begin(TP, 1, "=y").end(TP, 1)
    return [told.commit(TP, 2)]


def w5() -> Fleet:
    # A record is handled again in the same ownership, though it is done.
    told = _worker().assigned(TP).poll(TP, 0, 2).handle(TP, 0, 1)
    return [told.begin(TP, 1).end(TP, 1)]


def w5_never_delivered() -> Fleet:
    # A handler gets a record that no poll returned.
    return [_worker().assigned(TP).poll(TP, 0, 2).handle(TP, 0, 1, 2)]


def w7() -> Fleet:
    # Two handlers of one lane at a time.
    told = _worker().assigned(TP).poll(TP, 0, 2).begin(TP, 0, "=x")
    return [told.end(TP, 0, ok=False).begin(TP, 0, "=x").begin(TP, 1, "=x")]


def w7_overlapping_an_earlier_ownership() -> Fleet:
    # The handler of before is still at work on the lane.
    told = _worker().assigned(TP).poll(TP, 0, 1).begin(TP, 0, "=x").revoked(TP)
    told.assigned(TP, generation=3).poll(TP, 0, 1)
    said = {"tp": TP, "offset": 0, "id": "again", "lane": "=x"}
    return [told.then("handle", **said).end(TP, 0)]


def w7_overtaken() -> Fleet:
    # What failed and waits is overtaken by what stands behind it.
    told = _worker().assigned(TP).poll(TP, 0, 2).begin(TP, 0, "=x")
    return [told.end(TP, 0, ok=False).begin(TP, 1, "=x").end(TP, 1)]


def w7_behind_a_batch() -> Fleet:
    # A record of a batch waits, and what stands behind the batch begins.
    told = _worker().assigned(TP).poll(TP, 0, 4).begin_all(TP, 0, 1, 2)
    told.end(TP, 0, ok=False, done=[0, 2])
    return [told.begin(TP, 3).end(TP, 3)]


def w7_handed_over() -> Fleet:
    # What another process had not begun is passed by.
    told = _worker().assigned(TP).poll(TP, 0, 4).begin_all(TP, 0, 1, 2)
    told.end(TP, 0, ok=False, done=[0])
    return [told.begin(TP, 2).end(TP, 2).begin(TP, 1).end(TP, 1)]


def w7_backwards() -> Fleet:
    # In the wrong order, one after the other.
    return [_worker().assigned(TP).poll(TP, 0, 2).handle(TP, 1, 0)]


def w10() -> Fleet:
    # A handler begins on what its program holds.
    told = _worker().assigned(TP).poll(TP, 0, 2).pause("orders", owner="alice")
    return [told.handle(TP, 0)]


def w10_of_an_operator() -> Fleet:
    # The member has heard of the hold, and a handler begins all the same.
    told = _worker().assigned(TP).poll(TP, 0, 2)
    return [told.then("hold", scope="orders", owner="operator:eve").handle(TP, 0)]


def w10_tried_again() -> Fleet:
    # What ran when the hold came may end, and not begin another time.
    told = _worker().assigned(TP).poll(TP, 0, 2).begin(TP, 0)
    told.then("running", records={TP: [0]}).pause("orders")
    return [told.end(TP, 0, ok=False).begin(TP, 0)]


def w10_another_ran() -> Fleet:
    # What handlers were at excuses nothing else.
    told = _worker().assigned(TP).poll(TP, 0, 2)
    told.then("running", records={TP: [0], "returns:1": [1]}).pause("orders")
    return [told.begin(TP, 0, "=x").begin(TP, 1, "=y")]


def w10_taken_for_lifted() -> Fleet:
    # It takes an operator's hold for lifted, and begins.
    told = _worker().assigned(TP).poll(TP, 0, 5)
    told.until(1102.5).then("hold", scope="orders", owner="operator:alice")
    told.until(1112.5).then("lift", scope="orders", owner="operator:alice").handle(
        TP, 0
    )
    return [Operator().held(1100.1, 5000.1), told]


def w10_taken_for_lifted_and_told_late() -> Fleet:
    # It says so only after the handler.
    told = _worker().assigned(TP).poll(TP, 0, 5)
    told.until(1102.5).then("hold", scope="orders", owner="operator:alice")
    told.until(1113.0).handle(TP, 0)
    told.then("lift", scope="orders", owner="operator:alice", since=1112.5)
    return [Operator().held(1100.1, 5000.1), told]


def w10_never_heard() -> Fleet:
    # An operator's hold does not reach who owned the partition before.
    told = _worker().assigned(TP).poll(TP, 0, 2).handle(TP, 0)
    told.at = 1020.0
    return [Operator().held(1001.1), told.handle(TP, 1)]


def held_and_let_go() -> Fleet:
    # A pause, a resume, and the very next record.
    told = Telling().assigned(TP).poll(TP, 0, 5)
    told.pause("orders", assigned=[TP], paused=[TP]).poll()
    told.resume("orders", assigned=[TP], paused=[])
    return [told.poll(TP, 5, 9).commit(TP, 9)]


def paused_during_the_poll() -> Fleet:
    # Another thread's pause returns while a poll is on its way back.
    told = Telling().assigned(TP).polls().pause("orders")
    return [told.deliver(TP, 0, 2)]


def paused_again_for_the_next_ownership() -> Fleet:
    # The hold ended with its ownership, in that very poll; it is written down later.
    told = Telling().assigned(TP)
    told.pause(TP, assigned=[TP], paused=[TP]).polls()
    since = told.revoked(TP, generation=2).at
    told.assigned(TP, generation=2).pause(TP, assigned=[TP], paused=[TP])
    told.deliver(TP, 0, 2)
    return [told.then("lift", scope=TP, owner="app", since=since, why="ended")]


def paused_again_for_a_moment() -> Fleet:
    # In the poll it is given a limit, which is over when the records come.
    told = Telling().assigned(TP).pause("orders", assigned=[TP], paused=[TP])
    told.polls()
    said = {"scopes": ["orders"], "owner": "app", "until": told.at + 0.25}
    told.call("pause", {"assigned": [TP], "paused": [TP]}, **said)
    return [told.deliver(TP, 0, 2)]


def begun_before_there_were_journals() -> Fleet:
    # What lies before where an ownership stood first may have been read long ago.
    producer = Telling("producer").then("acked", tp=TP, first=0, last=9)
    told = Telling().assigned(TP).then("begins", tp=TP, offset=5)
    return [producer, told.poll(TP, 5, 10).commit(TP, 10)]


def compacted_and_transactional() -> Fleet:
    # Offsets are missing that never were records.
    told = Telling().assigned(TP)
    return [
        told.deliver(TP, 0, 40, first=7, count=3)
        .deliver(TP, 40, 55, first=41, last=50, count=2)
        .commit(TP, 55)
    ]


def transactional_and_acknowledged() -> Fleet:
    # What nobody acknowledged as a record may be passed over; a seek fills a gap.
    producer = Telling("producer").then("acked", tp=TP, first=0, last=2)
    producer.then("acked", tp=TP, first=4, last=8).then(
        "acked", tp=TP, first=10, last=12
    )
    told = Telling().assigned(TP)
    told.deliver(TP, 0, 10, last=8, count=8, gaps=[[3, 4]])
    told.deliver(TP, 10, 13, count=2, gaps=[[11, 12]])
    return [producer, told.call("seek", offsets={TP: 10}).poll(TP, 10, 13)]


def killed_before_the_commit() -> Fleet:
    # What was not committed comes again from the next owner.
    one = Telling("a").assigned(TP).poll(TP, 0, 5).commit(TP, 5).poll(TP, 5, 9)
    return [one, Telling("b", at=2000).assigned(TP, generation=2).poll(TP, 5, 20)]


def sought() -> Fleet:
    # A seek moves the position on purpose.
    told = Telling().assigned(TP).poll(TP, 0, 9).commit(TP, 9)
    return [told.call("seek", offsets={TP: 3}).poll(TP, 3, 12)]


def sought_and_committed() -> Fleet:
    # Back on purpose, also for the group; and forward before anything came.
    told = Telling("a").assigned(TP).poll(TP, 0, 9).commit(TP, 9)
    told.call("seek", offsets={TP: 3}).commit(TP, 3).poll(TP, 3, 6).commit(TP, 6)
    told.call("seek", offsets={TP: None}).poll(TP, 0, 9).commit(TP, 9).revoked(TP)
    two = Telling("b", at=2000).assigned(TP, generation=2)
    return [told, two.call("seek", offsets={TP: 9}).commit(TP, 9).poll(TP, 9, 12)]


def committed_where_it_begins() -> Fleet:
    # An ownership has a committed floor from the first, and again after a rebalance.
    one = Telling("a").assigned(TP).then("begins", tp=TP, offset=7).commit(TP, 7)
    one.poll(TP, 7, 9).revoked(TP).assigned(TP, generation=2).commit(TP, 9)
    one.revoked(TP, generation=2)
    two = Telling("b", at=2000).assigned(TP, generation=3).commit(TP, 9)
    return [one, two]


def peeked() -> Fleet:
    # poll(update_offsets=False): it comes again, and may be committed before.
    told = Telling().assigned(TP).poll(TP, 0, 5).poll(TP, 5, 9, peek=True)
    return [told.commit(TP, 9).poll(TP, 5, 9).poll(TP, 9, 12)]


def expired() -> Fleet:
    # A hold with a limit ends by itself.
    told = Telling().assigned(TP)
    told.call("pause", scopes=["orders"], owner="app", until=told.at + 0.3)
    return [told.poll().poll().poll(TP, 0, 4)]


def lifted_before_it_was_written() -> Fleet:
    # The event of a lift is journaled after the delivery that it allowed.
    told = Telling().assigned(TP).then("hold", scope="orders", owner="operator:eve")
    since = told.at + 0.05
    told.poll(TP, 0, 2)
    return [told.then("lift", scope="orders", owner="operator:eve", since=since)]


def held_for_the_group() -> Fleet:
    # One who owned it before may deliver until it hears; the next one waits.
    operator = Operator().held(1500.1, 3000.1)
    one = Telling("a").assigned(TP).poll(TP, 0, 5).commit(TP, 5).revoked(TP)
    two = Telling("b", at=2000).assigned(TP, generation=2)
    two.at = 3001.0
    return [operator, one, two.poll(TP, 5, 6)]


def held_for_the_group_while_a_rebalance_gives_it_back() -> Fleet:
    # It owned the partition before the hold, and nobody else did since; what is between
    # the acknowledgement and its next record is the time it takes to hear (G2).
    told = Telling("a").assigned(TP).revoked(TP)
    told.until(1503.0).assigned(TP, generation=2).poll(TP, 0, 6).commit(TP, 6)
    return [Operator().held(1500.1), told]


def given_back_by_an_eager_rebalance() -> Fleet:
    # It goes on where it was, though what it delivered is not committed yet.
    told = Telling().assigned(TP).poll(TP, 0, 5).commit(TP, 2)
    return [told.revoked(TP).assigned(TP, generation=2).poll(TP, 5, 9)]


def given_back_in_the_same_generation() -> Fleet:
    # A follower that joins again may be answered with the generation it knows. Nobody
    # else had its partitions: its ownership goes on, and the worker's number of it.
    told = _worker().assigned(TP).poll(TP, 0, 1).begin(TP, 0, epoch=1).end(TP, 0)
    told.commit(TP, 1).revoked(TP).assigned(TP).poll(TP, 1, 4)
    for offset in (1, 2, 3):
        told.begin(TP, offset, epoch=1).end(TP, offset)
    return [told.commit(TP, 4).poll(TP, 4, 5)]


def held_for_the_group_while_its_own_generation_gives_it_back() -> Fleet:
    # As with the very next one (G2): it owned the partition before the hold.
    told = Telling("a").assigned(TP).revoked(TP)
    told.until(1503.0).assigned(TP).poll(TP, 0, 6).commit(TP, 6)
    return [Operator().held(1500.1), told]


def thawed_into_a_generation_that_is_over() -> Fleet:
    # It cannot know yet that others own the partition; its commit is refused.
    one = Telling("a").assigned(TP).poll(TP, 0, 5).commit(TP, 5).revoked(TP)
    two = Telling("b", at=2000).assigned(TP, generation=3)
    two.poll(TP, 5, 9).commit(TP, 9)
    one.until(3000.0).assigned(TP, generation=2).poll(TP, 5, 7).commit(TP, 7, ok=False)
    return [one.then("lost", partitions=[TP], generation=-1), two]


def _positioned_late(position: int) -> Fleet:
    # Its assignment came in time, and the answer about committed offsets only when
    # another member had the partition in the next generation and had committed.
    one = Telling("a").assigned(TP).poll(TP, 0, 5).commit(TP, 5).revoked(TP)
    one.assigned(TP, generation=2)
    two = Telling("b", at=2000).assigned(TP, generation=3)
    two.poll(TP, 5, 9).commit(TP, 9).poll(TP, 9, 12)
    one.until(3000.0).poll(TP, position, position + 2).commit(
        TP, position + 2, ok=False
    )
    return [one.then("lost", partitions=[TP], generation=-1), two]


def positioned_when_its_generation_was_over() -> Fleet:
    return _positioned_late(9)


def killed_during_the_commit() -> Fleet:
    # What was asked for may have been done, though the answer never came.
    one = Telling("a").assigned(TP).poll(TP, 0, 5).commit(TP, 5).poll(TP, 5, 9)
    one.then("call", op="commit", id=99, offsets={TP: 9})
    return [one, Telling("b", at=2000).assigned(TP, generation=2).poll(TP, 9, 20)]


def answered_after_it_was_revoked() -> Fleet:
    # A commit judges the ownership that asked for it.
    told = Telling().assigned(TP).poll(TP, 0, 5)
    told.then("call", op="commit", id=99, offsets={TP: 5}).revoked(TP)
    return [told.then("return", op="commit", id=99, offsets={TP: 5})]


def committed_while_nobody_owned_it() -> Fleet:
    # A cooperative rebalance takes it away, and gives it in the next generation.
    one = Telling("a").assigned(TP).poll(TP, 0, 5).revoked(TP, generation=2)
    two = Telling("b", at=2000).assigned(TP, generation=3).poll(TP, 5, 9)
    return [one.commit(TP, 5), two.commit(TP, 9)]


def ended_before_it_was_written() -> Fleet:
    # A hold for one ownership ends with it; the event is journaled a little later. The
    # next hold of the same owner is none of its business.
    told = Telling().assigned(TP).pause("orders")
    since = told.revoked(TP, generation=2).at
    told.assigned(TP, generation=2).poll(TP, 0, 2)
    return [told.then("lift", scope="orders", owner="app", since=since)]


def ended_as_it_should() -> Fleet:
    # With its ownership, with the partition it went along with, and by its limit.
    told = Telling().assigned(TP, "returns:1")
    told.call("pause", scopes=["orders"], owner="w", lifetime="while_assigned")
    told.call("pause", scopes=[TP], owner="app", lifetime="until_resumed")
    told.call("pause", scopes=[TP], owner="b", until=told.at + 0.2)
    since = told.revoked(TP).at
    told.assigned(TP, generation=2).poll(TP, 0, 2)
    told.then("lift", scope="orders", owner="w", since=since, why="ended")
    told.then("lift", scope=TP, owner="app", since=since, why="ended")
    return [told.then("lift", scope=TP, owner="b", since=since, why="expired")]


def faults_are_told() -> Fleet:
    # What was done to the fleet, and what was thrown away, is no delivery.
    nemesis = Telling("nemesis", group="")
    nemesis.then("fault", id=1, kind="freeze", targets=["a"], seconds=3.0)
    nemesis.then("heal", id=1)
    told = Telling().assigned(TP).poll(TP, 0, 5)
    told.then("purged", tp=TP, count=7, why="its ownership ended")
    return [nemesis, told.poll(TP, 5, 9)]


def worked_through() -> Fleet:
    # Side by side, tried again, dead-lettered, skipped; each before it is committed.
    told = _worker().assigned(TP).poll(TP, 0, 6).begin(TP, 0, "=x")
    told.begin(TP, 1, "=y").end(TP, 1).commit(TP, 0).end(TP, 0, ok=False)
    told.begin(TP, 0, "=x").end(TP, 0).begin(TP, 2, "=x").commit(TP, 2)
    told.end(TP, 2, ok=False).complete(TP, 2, "dead-letter")
    told.begin(TP, 3, "=x").end(TP, 3, ok=False).complete(TP, 3, "skipped")
    told.begin(TP, 4, "=x").commit(TP, 4).end(TP, 4).begin(TP, 5, None).end(TP, 5)
    return [told.commit(TP, 6)]


def worked_in_batches() -> Fleet:
    # What failed comes again by itself, or all of it; another process began not all.
    told = _worker().assigned(TP).poll(TP, 0, 9).begin_all(TP, 0, 1, 2, 3)
    told.end(TP, 0, ok=False, done=[0, 2]).handle(TP, 1, 3)
    told.begin_all(TP, 4, 5, 6).end(TP, 4, ok=False, done=[])
    told.begin_all(TP, 4, 5, 6).end(TP, 4, ok=False, done=[4])
    return [told.begin_all(TP, 5, 6, 7, 8).end(TP, 5).commit(TP, 9)]


def worked_on_after_giving_back() -> Fleet:
    # It had no room for some of what a poll returned, which comes again.
    told = _worker().assigned(TP).poll(TP, 0, 6).begin(TP, 0)
    told.call("seek", offsets={TP: 3}).end(TP, 0).handle(TP, 1).poll(TP, 3, 6)
    return [told.handle(TP, 2, 3, 4, 5).commit(TP, 6)]


def worked_where_its_program_went() -> Fleet:
    # A seek of the program, which the worker notices with the next records.
    told = _worker().assigned(TP).poll(TP, 0, 6).handle(TP, 0, 1).begin(TP, 2)
    told.call("seek", offsets={TP: 4}).end(TP, 2).begin(TP, 3).poll(TP, 4, 6)
    told.then("dropped", tp=TP, before=4).begin(TP, 4, "=y").end(TP, 4)
    return [told.commit(TP, 5).end(TP, 3)]


def worked_in_turn() -> Fleet:
    # A writer's second worker: numbers of ownerships begin anew, and what the first one
    # gave up runs on.
    told = _worker().assigned(TP).poll(TP, 0, 2).begin(TP, 0, epoch=7).revoked(TP)
    told.then("working", order="key").assigned(TP, generation=3).poll(TP, 0, 2)
    said = {"tp": TP, "offset": 0, "id": "again", "lane": "", "epoch": 1}
    told.then("handle", **said).then("handled", **said, ok=True)
    return [told.begin(TP, 1, epoch=1).end(TP, 1).commit(TP, 2)]


def read_on_from_a_commit_whose_answer_was_lost() -> Fleet:
    # It was done although it failed: a coordinator that went away has it.
    one = Telling().assigned(TP).poll(TP, 0, 20).commit(TP, 20)
    one.call("seek", offsets={TP: 0}).poll(TP, 0, 5).then(
        "call", op="commit", id=90, offsets={TP: 5}
    )
    one.then("return", op="commit", id=90, offsets={TP: 5}, ok=False)
    two = (
        Telling("b", at=2000).assigned(TP, generation=2).then("begins", tp=TP, offset=5)
    )
    return [one.revoked(TP, generation=2), two.commit(TP, 5).poll(TP, 5, 20)]


def worked_on_what_ran() -> Fleet:
    # It had begun when the hold came, and says so a little later; a worker's own holds
    # stop nothing of what it has.
    told = _worker().assigned(TP).poll(TP, 0, 3)
    told.then("running", records={TP: [0]}).pause("orders").handle(TP, 0)
    told.resume("orders").pause("@all", owner="worker:backpressure")
    return [told.handle(TP, 1, 2).commit(TP, 3)]


def worked_again_after_a_departure() -> Fleet:
    # What was done and not committed comes again: here after a loss, and to another.
    told = _worker().assigned(TP).poll(TP, 0, 4).handle(TP, 0, 1, 2).commit(TP, 1)
    told.begin(TP, 3, "=slow").then("lost", partitions=[TP], generation=-1)
    told.assigned(TP, generation=3).poll(TP, 1, 4).handle(TP, 1, 2).commit(TP, 3)
    told.end(TP, 3)
    other = _worker("b", at=2000).assigned(TP, generation=4).poll(TP, 3, 5)
    return [told.revoked(TP, generation=4), other.handle(TP, 3, 4).commit(TP, 5)]


def worked_with_a_late_letter() -> Fleet:
    # The letter of an earlier ownership arrives while the new one has the record again.
    told = _worker().assigned(TP).poll(TP, 0, 1).begin(TP, 0, epoch=1)
    told.end(TP, 0, ok=False).revoked(TP).assigned(TP, generation=3).poll(TP, 0, 1)
    told.complete(TP, 0, "dead-letter", epoch=1).begin(TP, 0, epoch=2)
    told.end(TP, 0, ok=False).complete(TP, 0, "dead-letter", epoch=2)
    return [told.commit(TP, 1)]


def worked_by_a_task_of_before() -> Fleet:
    # It begins though its ownership has ended; that counts for nothing.
    told = _worker().assigned(TP).poll(TP, 0, 2).begin(TP, 0, epoch=1).revoked(TP)
    told.end(TP, 0).assigned(TP, generation=3).poll(TP, 1, 2)
    told.begin(TP, 0, epoch=1).end(TP, 0).begin(TP, 1, epoch=2).end(TP, 1)
    return [told.commit(TP, 2)]


def worked_until_it_heard() -> Fleet:
    # An operator's hold takes its time to reach who owned the partition before.
    told = _worker().assigned(TP).poll(TP, 0, 2).handle(TP, 0)
    told.at = 1003.0
    return [Operator().held(1001.1), told.handle(TP, 1)]


Maker = Callable[[], Fleet]
FLEETS: dict[str, Maker] = {
    name: made
    for name, made in globals().items()
    if isinstance(made, FunctionType) and made.__module__ == __name__ and name[0] != "_"
}
BAD: tuple[Maker, ...] = tuple(
    make for name, make in FLEETS.items() if _IS_OF_A_CHECK.match(name)
)
GOOD: tuple[Maker, ...] = tuple(make for make in FLEETS.values() if make not in BAD)
