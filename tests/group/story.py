"""
A team on a broker with passwords and ACLs, and the rights of everybody in it.
"""

import json
import re
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
from tests.group.secured import PASSWORDS, allow, properties
from tests.group.team import Team


class Story:
    """
    A team whose topics are set up by a super user, and worked with by alice.
    """

    def __init__(self, team: Team, folder: Path) -> None:
        self.team = team
        self.prefix = f"{team.group}_"
        team.settings = Control.prefixed(
            self.prefix, clock_skew=0.5, status_interval=0.3
        )
        self._files = {
            user: properties(folder, team, user, word)
            for user, word in PASSWORDS.items()
        }

    def run(self, user: str, *arguments: str) -> Result:
        where = ("--config", str(self._files[user]), "--topic-prefix", self.prefix)
        where = (*where, "--clock-skew", "0.5s")
        return CliRunner().invoke(safeconsumer, [*arguments, *where])

    def alice(self, *arguments: str) -> Result:
        return self.run("alice", *arguments, "--group", self.team.group)

    def set_up(self) -> None:
        """
        Make the topics, and set the ACLs that are printed; members' own beside them.
        """
        team = self.team
        made = self.run(
            "operator", "control", "init", "--operators", "User:alice",
            "--members", "User:member", "--group", team.group, "--topic", team.topic,
            "--json",
        )  # fmt: skip
        assert made.exit_code == Status.DONE, made.stderr
        acls = [one for row in json.loads(made.stdout)["acls"] for one in _acls(row)]
        own = [
            *allow("member", ResourceType.TOPIC, team.topic, ACLOperation.READ),
            *allow("member", ResourceType.GROUP, team.group, ACLOperation.READ),
        ]
        with KafkaAdminClient(**team.broker.client_config) as admin:
            admin.create_acls([*acls, *own])

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
