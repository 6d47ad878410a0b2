"""
``safeconsumer control init``: the control topics, and who may do what with them.
"""

from collections.abc import Iterator, Mapping

import click
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import TopicAlreadyExistsError

from safeconsumer.cli.connection import Connect, connection_options
from safeconsumer.cli.errors import EPILOG, CommandError, Status, explained
from safeconsumer.group import topics
from safeconsumer.group.operator import Operator
from safeconsumer.group.settings import Control


@click.group()
def control() -> None:
    """
    Set up the topics that group pauses are kept on.
    """


@control.command(epilog=EPILOG)
@click.option(
    "--replication",
    type=click.IntRange(1),
    default=None,
    help="Replicas of each topic; 3 where there are 3 brokers, else 1, by default.",
)
@connection_options
@click.pass_context
def init(context: click.Context, /, replication: int | None, connect: Connect) -> None:
    """
    Create the control topics with the right settings, and print the ACLs to set.

    Topics that exist get the settings they lack; running it again is safe.
    """
    with explained(context), Operator(*connect()) as operator:
        brokers = len(operator.admin.describe_cluster()["brokers"])
        replicas = replication or (3 if brokers >= 3 else 1)  # noqa: PLR2004 - a majority
        if replicas > brokers:
            message = f"--replication {replicas}, but there are {brokers} brokers"
            raise CommandError(message)
        for name, settings in _wanted(operator.settings, replicas).items():
            click.echo(f"{_make(operator, name, settings, replicas)} {name}")
        click.echo("\n".join(acl_lines(operator.settings)))


def _wanted(settings: Control, replicas: int) -> dict[str, Mapping[str, str]]:
    safe = {"min.insync.replicas": str(max(1, replicas - 1))}
    wanted: dict[str, Mapping[str, str]] = {
        name: {**topics.HOLDS_SETTINGS, **safe} for name in settings.topics
    }
    if settings.status_topic is not None:
        wanted[settings.status_topic] = topics.STATUS_SETTINGS
    return wanted


def _make(
    operator: Operator, name: str, settings: Mapping[str, str], replicas: int
) -> str:
    wish = {
        "num_partitions": 1,
        "replication_factor": replicas,
        "configs": dict(settings),
    }
    try:
        operator.admin.create_topics({name: wish})
    except TopicAlreadyExistsError:
        return _mend(operator, name, settings)
    return "created"


def _mend(operator: Operator, name: str, settings: Mapping[str, str]) -> str:
    (facts,) = topics.ask(operator.admin, (name,))
    if facts.partitions != 1:
        message = (
            f"{name} has {facts.partitions} partitions and must have 1: delete it, or "
            "choose another name"
        )
        raise CommandError(message, Status.REFUSED)
    known = facts.settings or {}
    lacking = {key: value for key, value in settings.items() if known.get(key) != value}
    if not lacking:
        return "unchanged"
    resource = ConfigResource(ConfigResourceType.TOPIC, name, configs=lacking)
    operator.admin.alter_configs([resource])
    return f"set {', '.join(sorted(lacking))} on"


def acl_lines(settings: Control) -> Iterator[str]:
    """
    Yield the commands that give operators and members what they need, and no more.
    """
    operators, group = settings.topics
    yield ""
    yield "# Set these; replace the principals and the group. Members must not be able"
    yield f"# to write {operators}: that is what makes an operator's hold one."
    for who, what, name in (
        ("OPERATOR", "Read --operation Write --operation DescribeConfigs", operators),
        ("OPERATOR", "Read --operation Write --operation DescribeConfigs", group),
        ("MEMBER", "Read --operation DescribeConfigs", operators),
        ("MEMBER", "Read --operation Write --operation DescribeConfigs", group),
    ):
        yield _acl(who, what, f"--topic {name}")
    if settings.status_topic is not None:
        yield _acl("OPERATOR", "Read", f"--topic {settings.status_topic}")
        yield _acl("MEMBER", "Write", f"--topic {settings.status_topic}")
    yield _acl("OPERATOR", "Describe", "--group GROUP")


def _acl(who: str, what: str, where: str) -> str:
    return (
        f"kafka-acls.sh --bootstrap-server ... --add --allow-principal User:{who} "
        f"--operation {what} {where}"
    )
