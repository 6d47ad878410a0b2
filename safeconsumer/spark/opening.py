"""
Making a stream of its options: the places where its holds are, and its watch.
"""

from typing import Any

from safeconsumer.events.dispatch import Hook
from safeconsumer.group.properties import client_configs
from safeconsumer.group.settings import Control
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.spark.control import ControlFollower
from safeconsumer.spark.hold_file import HoldFile
from safeconsumer.spark.options import SourceOptions
from safeconsumer.spark.stream import Follower, Stream
from safeconsumer.spark.watch import HeldWatch

_OWNER = "option"


def open_stream(own: PauseLedger, name: str, options: SourceOptions) -> Stream:
    """
    Return a stream that obeys this process and everything that the options name.

    Args:
        own: holds of this process; its hooks take the stream's events.
        name: of the stream.
        options: what it was asked to obey.

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
        followers.append(_control(options, (own.pass_on,)))
    watch = HeldWatch(name, options, own) if options.watch_interval else None
    return Stream(
        name,
        options,
        ledgers=(own, fixed),
        followers=tuple(followers),
        watch=watch,
    )


def _control(options: SourceOptions, hooks: tuple[Hook, ...]) -> Follower:
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
        configs(options.control_client),
        timeout=options.control_timeout,
        hooks=hooks,
    )


def configs(properties: Any) -> dict[str, Any]:  # noqa: ANN401 - a mapping of text
    """
    Return kafka-python's configuration for Java's client properties.

    Raises:
        ClientPropertyError: one cannot be carried over.
    """
    found = client_configs(properties)
    found["bootstrap_servers"] = str(found.get("bootstrap_servers", "")).split(",")
    return found
