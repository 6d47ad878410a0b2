"""Scenarios of groups: commits, owners, and the lifetime of pauses."""

from kafka import OffsetAndMetadata

from safeconsumer import SafeConsumer
from tests.sim.parity.stages import both, in_groups
from tests.sim.reading import Listener, raised


def joined(s, *topics, **settings):
    """Create a member that the scenario polls, and wait until it has partitions."""
    one = s.consumer(*topics, group_id=s.group, **settings)
    # The stock client forgets a join that its poll does not complete, so polls are
    # long.
    one.until(one.consumer.assignment, limit=1, each=2)
    one.consumer.seek_to_beginning()
    one.log.clear()
    return one


def offsets(one, partitions):
    return [one.consumer.committed(tp) for tp in partitions]


@both
def a_member_joins_reads_commits_and_leaves(s):
    """Both clients send a member's requests in the same order."""
    partitions = s.topic(partitions=2, records=5)
    a = s.member("t")
    a.owns(2)
    a.settle()
    s.facts["values"] = [a.values(tp) for tp in partitions]
    a.call(lambda consumer: consumer.commit())
    a.close()
    s.facts["kinds"] = a.kinds()
    s.facts["committed"] = offsets(s.consumer(group_id=s.group), partitions)


@both
def the_next_member_begins_at_the_committed_offset(s):
    """The next owner starts at the committed offset."""
    (tp,) = s.topic(records=10)
    one = joined(s, "t")
    one.read(10)
    one.consumer.commit({tp: OffsetAndMetadata(4, "four", -1)})
    one.consumer.close(autocommit=False)
    a = s.member("t")
    a.owns(1)
    a.settle()
    s.facts["values"] = a.values(tp)


@both
def a_group_has_no_commits(s):
    """The consumer requests the end of the log, where ``latest`` starts."""
    (tp,) = s.topic(records=5)
    one = joined(s, "t", auto_offset_reset="latest")
    one.consumer.seek_to_end()
    s.facts["committed"] = one.consumer.committed(tp)
    s.facts["position"] = one.consumer.position(tp)
    s.append(2, tp)
    s.facts["values"] = one.read(2)


@both
def commits_with_metadata_and_without_waiting(s):
    """``committed`` returns the metadata; a callback gets offsets and no error."""
    (tp,) = s.topic(records=5)
    one = joined(s, "t")
    one.read(5)
    one.consumer.commit({tp: OffsetAndMetadata(3, "three", -1)})
    found = one.consumer.committed(tp, metadata=True)
    s.facts["metadata"] = (found.offset, found.metadata)
    answers = []
    one.consumer.commit_async(
        callback=lambda asked, error: answers.append((asked, error))
    )
    one.until(lambda: answers)
    (asked, error) = answers[0]
    s.facts["callback"] = ([one.offset for one in asked.values()], repr(error))


@both
def a_close_that_commits_by_itself(s):
    """A close with ``enable_auto_commit`` commits the records that were read."""
    (tp,) = s.topic(records=5)
    one = joined(s, "t", enable_auto_commit=True, auto_commit_interval_ms=3_600_000)
    one.read(5)
    one.consumer.close()
    s.facts["committed"] = s.consumer(group_id=s.group).consumer.committed(tp)


@both
def a_commit_by_a_client_outside_the_group(s):
    """A group with members refuses the commit; a group without members accepts it."""
    (tp,) = s.topic(records=5)
    outside = s.consumer(group_id=s.group)
    outside.consumer.assign([tp])
    offset = {tp: OffsetAndMetadata(2, "", -1)}
    s.facts["without members"] = raised(lambda: outside.consumer.commit(offset))
    a = s.member("t")
    a.owns(1)
    s.facts["with members"] = raised(lambda: outside.consumer.commit(offset))
    a.settle()
    s.facts["values"] = a.values(tp)


@both
def offsets_of_a_transaction(s):
    """Offsets sent to a transaction are committed with the transaction, and not before."""
    (tp,) = s.topic(records=5)
    a = s.member("t")
    a.owns(1)
    a.settle()
    producer = s.producer(transactional_id=s.name("producer"))
    producer.init_transactions()
    answers = []

    def committed():
        return a.call(lambda consumer: consumer.committed(tp))

    for end in ("abort_transaction", "commit_transaction"):
        producer.begin_transaction()
        metadata = a.consumer.group_metadata()
        offset = {tp: OffsetAndMetadata(5, "", -1)}
        producer.send_offsets_to_transaction(offset, metadata)
        getattr(producer, end)()
        if end == "commit_transaction":  # Kafka answers before it writes the markers
            s.until(lambda: committed() is not None, "the offset to be committed")
        answers.append(committed())
    producer.close()
    s.facts["committed"] = answers


@in_groups
def a_member_comes_and_goes(s):
    """The generation rises each time a member joins or leaves."""
    # The generation may rise by more than one, because a join may be repeated.
    s.topic(partitions=4)
    a = s.member("t")
    a.owns(4)
    generations = [a.generation()]
    b = s.member("t")
    b.owns(2)
    a.owns(2)
    s.until(lambda: a.generation() == b.generation(), "one generation")
    b.settle()
    generations.append(a.generation())
    b.close()
    a.owns(4)
    generations.append(a.generation())
    a.close()
    s.facts["rising"] = generations == sorted(set(generations))
    s.facts["kinds of the first"] = sorted(a.kinds())
    s.facts["kinds of the second"] = sorted(b.kinds())


@both
def a_pattern_and_a_topic_that_comes_later(s):
    """A new topic that matches is assigned, read, and not paused."""
    s.topic("match-1", records=5)
    s.topic("other", records=5)
    # With shorter polls the stock client forgets a join.
    a = s.member(metadata_max_age_ms=500, poll_ms=5000)
    pattern = f"{s.name('match')}.*"
    a.call(lambda consumer: consumer.subscribe(pattern=pattern))
    a.owns(1)
    a.settle()
    a.call(lambda consumer: consumer.pause(*consumer.assignment()))
    s.topic("match-2", records=3)
    a.owns(2)
    a.settle()
    s.facts["values"] = [int(one.value) for one in a.records]
    s.facts["paused"] = [
        tp.topic.removeprefix(s.name("")) for tp in a.consumer.paused()
    ]


@both
def a_topic_that_is_deleted_and_made_again(s):
    """A pause of the topic's partition ends with the topic, and reading starts again."""
    (tp,) = s.topic(records=5)
    s.topic("other", records=1)
    a = s.member("t", "other", metadata_max_age_ms=500, poll_ms=5000)  # as above
    a.owns(2)
    a.settle()
    a.call(lambda consumer: consumer.pause(tp))
    s.admin().delete_topics([tp.topic])
    a.owns(1)
    # Kafka needs some time to forget the old topic.
    s.until(lambda: not raised(s.topic), "the topic again")
    a.owns(2)
    s.append(3, tp)
    a.settle()
    s.facts["paused"] = len(a.consumer.paused())
    s.facts["values"] = a.values(tp)


@both
def a_commit_in_a_listener(s):
    """A commit in a listener raises an error and commits nothing."""
    raised_in_it = []

    def revoked(tps):
        if tps:
            raised_in_it.append(raised(a.consumer.commit))

    partitions = s.topic(partitions=2, records=5)
    a = s.member()
    topics, listener = [s.name("t")], Listener(revoked=revoked)
    a.call(lambda consumer: consumer.subscribe(topics, listener=listener))
    a.owns(2)
    a.settle()
    a.call(lambda consumer: consumer.unsubscribe())
    s.facts["raised"] = raised_in_it
    s.facts["committed"] = offsets(s.consumer(group_id=s.group), partitions)


@in_groups
def a_static_member_that_comes_back(s):
    """A restart within the session timeout causes no rebalance for the other members."""
    s.topic(partitions=4)
    static = {"group_instance_id": "static", "session_timeout_ms": 20_000}
    a = s.member("t", session_timeout_ms=20_000)
    a.owns(4)
    b = s.member("t", **static)
    b.owns(2)
    a.owns(2)
    before = a.generation()
    held = sorted(tp.partition for tp in b.consumer.assignment())
    b.close()
    b = s.member("t", **static)
    b.owns(2)
    s.facts["later"] = b.generation() - before
    s.facts["the same"] = held == sorted(tp.partition for tp in b.consumer.assignment())


@both
def a_static_member_that_was_fenced(s):
    """A second member takes the ``group_instance_id``, and the first member is fenced."""
    s.topic(partitions=2, records=5)
    static = {"group_instance_id": "static"}
    a = s.member("t", **static)
    a.owns(2)
    a.settle()
    b = s.member("t", **static)
    b.owns(2)
    b.settle()
    s.facts["second"] = len(b.records)
    polls = a.polls
    if s.kind is SafeConsumer:  # the stock client raises no error
        s.until(lambda: a.error, "an error")
    s.until(lambda: a.error or a.polls >= polls + 5, "more polls")
    s.facts["error of the first"] = a.error
