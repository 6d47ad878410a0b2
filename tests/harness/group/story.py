"""A team on a broker with passwords and ACLs, and the rights of everybody in it."""

import json
import re

from click.testing import CliRunner
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourceType,
)

from safeconsumer import Control
from safeconsumer.cli.commands import safeconsumer
from safeconsumer.cli.errors import Status
from tests.harness.group.secured import PASSWORDS, allow, properties


class Story:
    """A team whose topics are set up by a super user, and worked with by alice."""

    def __init__(self, team, folder):
        self.team = team
        self.prefix = f"{team.group}_"
        team.settings = Control.prefixed(
            self.prefix, clock_skew=0.5, status_interval=0.3
        )
        self.files = {
            user: properties(folder, team, user, word)
            for user, word in PASSWORDS.items()
        }

    def where(self, user):
        """Return the options of a command of somebody."""
        login = ("--config", str(self.files[user]))
        return (*login, "--topic-prefix", self.prefix)

    def run(self, user, *arguments):
        return CliRunner().invoke(safeconsumer, [*arguments, *self.where(user)])

    def alice(self, *arguments):
        return self.run("alice", *arguments, "--group", self.team.group)

    def set_up(self):
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

    def grant(self, acls):
        with KafkaAdminClient(**self.team.broker.client_config) as admin:
            admin.create_acls([*acls])

    def member(self, name, **configs):
        login = self.team.broker.client_of("member")
        return self.team.subscribed(name, **login, **configs)


def _acls(row):
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
