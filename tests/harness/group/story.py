"""A team on a broker with passwords and ACLs, and the rights of everybody in it."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourceType,
)

from safeconsumer import Control, SafeConsumer
from safeconsumer.cli.commands import safeconsumer
from safeconsumer.cli.errors import Status
from tests.harness.group.secured import PASSWORDS, allow, properties
from tests.harness.group.team import Team


class Story:
    """A team whose topics are set up by a super user, and worked with by alice."""

    def __init__(self, team: Team, folder: Path) -> None:
        self.team = team
        self.prefix = f"{team.group}_"
        team.settings = Control.prefixed(
            self.prefix, clock_skew=0.5, status_interval=0.3
        )
        self.files = {
            user: properties(folder, team, user, word)
            for user, word in PASSWORDS.items()
        }

    def where(self, user: str) -> tuple[str, ...]:
        """Return the options of a command of somebody."""
        login = ("--config", str(self.files[user]))
        return (*login, "--topic-prefix", self.prefix)

    def run(self, user: str, *arguments: str) -> Result:
        return CliRunner().invoke(safeconsumer, [*arguments, *self.where(user)])

    def alice(self, *arguments: str) -> Result:
        return self.run("alice", *arguments, "--group", self.team.group)

    def set_up(self) -> None:
        """Make the topics, and set the ACLs that are printed; members' own beside them."""
        team = self.team
        made = self.run("operator", "control", "init")
        assert made.exit_code == Status.DONE, made.stderr
        rights = [
            "control", "acls", "--operators", "User:alice", "--members", "User:member",
            "--group", team.group, "--topic", team.topic, "--topic-prefix", self.prefix,
        ]  # fmt: skip
        printed = CliRunner().invoke(safeconsumer, [*rights, "-o", "json"])
        self.grant(one for row in json.loads(printed.stdout) for one in _acls(row))
        self.grant(
            [
                *allow("member", ResourceType.TOPIC, team.topic, ACLOperation.READ),
                *allow("member", ResourceType.GROUP, team.group, ACLOperation.READ),
            ]
        )

    def grant(self, acls: Iterable[ACL]) -> None:
        with KafkaAdminClient(**self.team.broker.client_config) as admin:
            admin.create_acls([*acls])

    def member(self, name: str, **configs: Any) -> SafeConsumer:  # noqa: ANN401 - upstream's
        login = self.team.broker.client_of("member")
        return self.team.subscribed(name, **login, **configs)


def _acls(row: dict[str, Any]) -> list[ACL]:
    kind = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP}
    pattern = ResourcePattern(
        kind[row["resource_type"]],
        row["name"],
        ACLResourcePatternType[row["pattern_type"].upper()],
    )
    return [
        ACL(
            principal=row["principal"],
            host="*",
            operation=ACLOperation[re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper()],
            permission_type=ACLPermissionType.ALLOW,
            resource_pattern=pattern,
        )
        for name in row["operations"]
    ]
