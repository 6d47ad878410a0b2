"""Implements ``safeconsumer control``: creates the control topics, and prints ACLs."""

from collections.abc import Callable, Mapping
from typing import Any

import click
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import TopicAlreadyExistsError

from safeconsumer.cli.connection import Connect, connection_options, prefix_option
from safeconsumer.cli.errors import CommandError, explained
from safeconsumer.cli.listing import Listing
from safeconsumer.cli.output import Output, output_options
from safeconsumer.cli.statuses import EPILOG, Status
from safeconsumer.group import described_topics, topics
from safeconsumer.group.operator import Operator
from safeconsumer.group.rights import grants
from safeconsumer.group.settings import Control
from safeconsumer.holds.explain import counted


def _checked_principals(
    _context: click.Context, _option: click.Parameter, given: tuple[str, ...]
) -> tuple[str, ...]:
    # Kafka takes principals literally, so an ACL for User:bill* does not match any
    # user.
    for one in given:
        kind, _, name = one.partition(":")
        if not kind or not name or (name.endswith("*") and name != "*"):
            message = (
                f"{one!r} is not a principal: write it as User:alice; Kafka knows no "
                "prefixes of principals"
            )
            raise click.BadParameter(message)
    return given


def _acl_options(command: Callable[..., Any]) -> Callable[..., Any]:
    # The principals, topics and groups to print ACLs for.
    for name, many, metavar, what in (
        ("--topic", "topics_", "TOPIC", "A topic that these groups consume."),
        ("--group", "groups", "GROUP", "A group that operators may see."),
        ("--members", "members", "PRINCIPAL", "A consumer, as User:billing."),
        ("--operators", "operators", "PRINCIPAL", "An operator, as User:alice."),
    ):
        is_principal = metavar == "PRINCIPAL"
        more = " Repeatable." if is_principal else " Repeatable; billing-* is a prefix."
        command = click.option(
            name,
            many,
            multiple=True,
            metavar=metavar,
            help=what + more,
            callback=_checked_principals if is_principal else None,
        )(command)
    return command


@click.group(cls=Listing)
def control() -> None:
    """Set up the topics that store the holds on groups."""


@control.command(epilog=EPILOG)
@click.option(
    "--replication",
    type=click.IntRange(1),
    default=None,
    help="Replicas of each topic; by default 3 if there are 3 brokers, else 1.",
)
@connection_options
@click.pass_context
def init(
    context: click.Context, /, *, replication: int | None, connect: Connect
) -> None:
    """
    Create the control topics with suitable settings.

    Missing settings are added to existing topics, and running the command again is
    safe. After that, use control acls to print the ACLs that operators and members
    need.
    """
    with explained(context), Operator(*connect()) as operator:
        brokers = len(operator.admin.describe_cluster()["brokers"])
        replicas = replication or (3 if brokers >= 3 else 1)  # noqa: PLR2004 - a majority
        if replicas > brokers:
            there = counted(brokers, "broker")
            message = f"--replication {replicas}, but the cluster has {there}"
            raise CommandError(message)
        _refuse_partitioned(operator)
        for name, settings in _settings_by_topic(operator.settings, replicas).items():
            what = _create(operator, name, settings, replicas)
            click.echo(f"{what} {name}")
        click.echo("safeconsumer control acls prints the rights to set")


def _refuse_partitioned(operator: Operator) -> None:
    # Check this before any change, because Kafka cannot reduce a topic's partitions.
    for facts in described_topics.describe(operator.admin, operator.settings.topics):
        if facts.partitions and facts.partitions != 1:
            (fault,) = topics.faults(facts)
            message = f"{fault}; nothing was changed"
            raise CommandError(message, Status.REFUSED)


def _settings_by_topic(
    settings: Control, replicas: int
) -> dict[str, Mapping[str, str]]:
    safe = {"min.insync.replicas": str(max(1, replicas - 1))}
    wanted: dict[str, Mapping[str, str]] = {
        settings.holds_topic: {**topics.HOLDS_SETTINGS, **safe}
    }
    if settings.status_topic is not None:
        wanted[settings.status_topic] = topics.STATUS_SETTINGS
    return wanted


def _create(
    operator: Operator, name: str, settings: Mapping[str, str], replicas: int
) -> str:
    wanted = {
        "num_partitions": 1,
        "replication_factor": replicas,
        "configs": dict(settings),
    }
    try:
        operator.admin.create_topics({name: wanted})
    except TopicAlreadyExistsError:
        return _add_settings(operator, name, settings)
    return "created"


def _add_settings(operator: Operator, name: str, settings: Mapping[str, str]) -> str:
    (facts,) = described_topics.describe(operator.admin, (name,))
    known = facts.settings or {}
    lacking = {key: value for key, value in settings.items() if known.get(key) != value}
    if not lacking:
        return "unchanged"
    resource = ConfigResource(ConfigResourceType.TOPIC, name, configs=lacking)
    operator.admin.alter_configs([resource])
    return f"set {', '.join(sorted(lacking))} on"


@control.command(epilog=EPILOG)
@_acl_options
@output_options
@prefix_option
def acls(  # noqa: PLR0913 - one parameter per option
    *,
    operators: tuple[str, ...],
    members: tuple[str, ...],
    groups: tuple[str, ...],
    topics_: tuple[str, ...],
    output: Output,
    topic_prefix: str,
) -> None:
    """
    Print exactly the ACLs that operators and members need, without contacting a broker.

    Only operators may write to the holds topic. Each operator can lift the holds on
    every group whose members read the topic, so teams that do not trust each other
    should have separate topics (--topic-prefix).
    """
    settings = Control.prefixed(topic_prefix)
    found = tuple(
        grants(
            settings,
            operators or ("User:OPERATOR",),
            members or ("User:MEMBER",),
            groups or ("GROUP",),
            topics_ or ("TOPIC",),
        )
    )
    if output.is_json:
        output.document([one.document() for one in found])
        return
    lines = [
        "# Set these for your principals, groups and topics. Members must not be able",
        f"# to write {settings.holds_topic}: its writers can place and lift holds.",
        "# Operators need Read of groups and of their topics only so that",
        "# reset-offsets can move a group without members.",
    ]
    Output().lines([*lines, *(one.command() for one in found)])
