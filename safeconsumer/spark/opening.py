"""
Making a stream of its options: the places where its holds are, and its watch.
"""

from safeconsumer.events.dispatch import Hook
from safeconsumer.group.settings import Control
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.spark.control import ControlFollower
from safeconsumer.spark.hold_file import HoldFile
from safeconsumer.spark.logins import Connect, plain
from safeconsumer.spark.options import SourceOptions
from safeconsumer.spark.stream import Follower, Stream
from safeconsumer.spark.watch import HeldWatch

_OWNER = "option"


def open_stream(
    own: PauseLedger, name: str, options: SourceOptions, connect: Connect = plain
) -> Stream:
    """
    Return a stream that obeys this process and everything that the options name.

    Args:
        own: holds of this process; its hooks take the stream's events.
        name: of the stream.
        options: what it was asked to obey.
        connect: turns properties of Java's clients into kafka-python's configuration.

    Raises:
        ClientPropertyError: a property of the control clients cannot be carried over.
        ControlTopicError: a control topic would not keep holds for good.
    """
    fixed = PauseLedger()
    fixed.place(options.scopes, owner=_OWNER, reason="option holds of the stream")
    followers: list[Follower] = []
    if options.file is not None:
        followers.append(HoldFile(options.file))
    if options.control is not None:
        followers.append(_control(options, connect, (own.pass_on,)))
    watch = None
    if options.watch_interval:
        watch = HeldWatch(name, options, own, connect)
    return Stream(
        name,
        options,
        ledgers=(own, fixed),
        followers=tuple(followers),
        watch=watch,
    )


def _control(
    options: SourceOptions, connect: Connect, hooks: tuple[Hook, ...]
) -> Follower:
    operator_topic, group_topic = options.control or ("", "")
    settings = Control(
        operator_topic=operator_topic,
        group_topic=group_topic,
        status_topic=None,
        clock_skew=options.clock_skew,
        start_timeout=options.control_timeout,
    )
    return ControlFollower(
        settings,
        options.group,
        connect(options.control_client),
        timeout=options.control_timeout,
        hooks=hooks,
    )
