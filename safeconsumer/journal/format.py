"""
Defines the delivery journal: the actions of one process, in JSON lines.

This is version 5. The first line, ``{"journal": 5, "member": ..., "group": ..., "at":
...}``, names the member. Each further line has ``n``, its number, which is one higher
than that of the line before, ``at``, the seconds since the epoch by a clock that never
goes back, ``e``, the name of the event, and the event's fields. A partition is written
as ``topic:number``, a time as seconds since the epoch. Unknown values are left out, or
are null. A reader skips events that are not named here.

Events of every consumer:

- ``assigned``: ``partitions``; ``generation``; ``topics``: the ids of the partitions'
  topics by name, which distinguish a topic from a deleted topic of the same name;
  ``cluster``: the id of the cluster, which is unknown when a journal's head is written;
- ``revoked``, ``lost``: ``partitions``, ``generation``; the event is ``lost`` if the
  member lost its membership while it owned the partitions, and ``revoked`` otherwise,
  including when ``assign`` or ``unsubscribe`` drops them;
- ``unseen``: after this entry the journal may lack commits of this member, because a
  producer got ``group_metadata()`` for its transactions, or because another library's
  client commits on its own;
- ``committed``: ``offsets``: by partition, the group's committed offset at the start of
  an ownership, as the broker returned it, or null if nothing is committed; ``notes``:
  the metadata of these commits. If the program gives no metadata, a member with a
  journal commits with ``journal:name#n``: ``name`` is the ``member`` of the journal's
  head, and ``n`` the number of its newest entry when the commit was requested. That
  entry is the ``call`` or a later one. All other metadata comes from programs;
- ``clock``: ``least``, ``most``: the broker's clock is ahead of this journal's by at
  least, and at most, this many seconds; written with ``control=``, once a minute and
  whenever the bounds contradict the previous ones;
- ``begins``: ``tp``, ``offset``: the position was set to an offset that no seek named:
  the committed offset, or the offset of the client's reset policy;
- ``reset``: ``tp``, ``offset``, ``owner``: the position is the offset to which a hold
  of this owner, such as ``operator:alice``, moves the partition; the ownership has just
  begun there, or had already committed this offset before and continues there;
- ``log_start``: ``tp``, ``first``: the first offset of the log, from the broker's first
  answer to a fetch after the client's reset policy set a position (``begins``), either
  at the start of an ownership without a committed offset, or forward from a position
  that was out of range;
- ``deliver``: the records of one partition that a poll returned, or a step of an
  iteration: ``tp``, ``from`` and ``next``, the positions before and after, ``first`` and
  ``last`` offset, ``count``, ``gaps``: the offsets between these that have no record,
  ``[7, 9]`` for 7 and 8; ``after``, the number of the last entry before that poll or
  step began, and ``asked``, when it began; ``peek``, true if the poll leaves the
  position unchanged (``poll(update_offsets=False)``); for the first record ``written``,
  when the broker appended it, or ``created``, the producer's time. Polls that return no
  records are not written;
- ``named``: ``tp``, ``topics``: the id of the topic, if ``assigned`` lacks it because
  the client did not know the id yet;
- ``transactional``: ``tp``: after this entry records may belong to a transaction, and
  no records are delivered at the offsets of its markers and aborted records;
- ``moved``: ``tp``, ``from`` and ``next``: the position moved past offsets without a
  record;
- ``call`` and ``return``, with the same ``op`` (pause, resume, seek, commit, assign,
  unsubscribe) and the same ``id``. A pause or resume has ``scopes`` and ``owner``. A
  pause has ``until`` if it expires, ``lifetime`` (until_resumed, while_assigned or
  plain), and ``moves``, true if ``pause_handover`` is on. A resume has ``every``, true
  if it lifts all holds of its owner; ``scopes`` may then lack one that another thread
  is placing. A commit or seek has ``offsets``; in a seek null means the start or the
  end of the log or, if seeks overlap, any offset. ``ok`` is false in a ``return`` if
  the call failed. For a commit, ``call`` is written when the application calls, or when
  the client commits on its own, and ``return`` when the answer is known, with the
  offsets that were sent: a commit leaves out topics that were deleted; a commit that
  failed may still have been stored. The client itself may also write a ``seek``: back
  to records that the journal lists as delivered, but that the poll or step could not
  return;
- ``hold``, ``lift``: ``scope`` and ``owner`` of a hold that no call lists in its
  ``scopes``: a hold of an operator or a group, a pause that was handed over, or a whole
  pause. If the hold has a record in the control topic, a ``hold`` also has ``written``,
  when the broker appended that record, and ``offset``, the record's offset. Otherwise
  it has ``since``, when the hold was placed, because the entry may be written a little
  later, and ``until`` if the hold expires. A ``lift`` also has ``since``, when the hold
  ended, and ``why`` if no other process lifted it: it expired, it ended with an
  ownership, or a ``resume`` of this consumer ended it.

Events of a worker whose consumer keeps a journal; each entry is written before anything
that follows from it, such as a commit, the next record of a lane, or an event:

- ``working``: ``order`` (partition, key, unordered): after this entry a worker's
  handlers get the records, so that a record counts as done only if a handler reports
  that;
- ``handle`` and ``handled``: a handler begins and ends; both entries have the same
  ``tp``, ``offset`` and ``id``. A ``handle`` also has ``lane``, which is the same for
  records that must not be handled at the same time, or null if there is no such limit;
  ``attempt``; and ``epoch``, a number that grows with each ownership. A ``handled``
  also has ``ok``, false if the handler raised. For a batch ``offset`` is the first
  offset, and ``handle`` has all offsets as ``batch``; a ``handled`` that is not ``ok``
  has the completed offsets as ``done``;
- ``completed``: ``tp``, ``offset``, ``epoch``, ``why``: the record is complete although
  its handler failed: dead-letter (written when the letter is acknowledged) or skipped,
  even without a handler if the record cannot be read from the broker's log;
- ``dropped``: ``tp``, ``before``: the worker has noticed that the position was moved,
  and has dropped all records below this offset that it still had;
- ``running``: ``records``, the offsets that handlers are working on, by partition;
  written after a hold has come into force, and before the entry that reports the hold.

Events of other programs:

- ``acked``: ``tp``, ``first``, ``last``: a producer's acknowledged records;
- ``kept``: ``tp``, ``first``: the first offset of a topic's log that was read; earlier
  records are deleted.

A killed process may leave half a line at the end; no other line may be broken.

A journal may have several parts, each in its own file. The head of a later part also
has ``part``, its number (the first part is 1), ``after``, the number of the last entry
before it, and ``began``, the ``at`` of the first head. The last line of a complete part
has no ``n``; it has the ``part`` and ``after`` of the next part.
"""

VERSION = 5

# The prefix of commit metadata that names a journal.
NOTE = "journal:"

# Why a hold that no other process lifted has ended.
EXPIRED, ENDED, RESUMED = "expired", "ended", "resume"

# The reasons why a record is complete although its handler failed.
DEAD_LETTER, SKIPPED = "dead-letter", "skipped"


def tp_text(tp: tuple[str, int]) -> str:
    """Return the name of a partition in journals."""
    return f"{tp[0]}:{tp[1]}"


def scope_text(scope: object) -> str:
    """Return the name of a scope in journals."""
    topic, number = getattr(scope, "topic", None), getattr(scope, "partition", None)
    # A partition of the topic re is written re:re:3, because re:3 would be a pattern.
    is_of_re = topic == "re" and number is not None
    return f"re:{topic}:{number}" if is_of_re else str(scope)
