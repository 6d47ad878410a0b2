"""Runs a Java broker with passwords and ACLs, and a team with limited permissions."""

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
from tests.harness.brokers.java import JavaBroker
from tests.harness.brokers.ports import reserved_port
from tests.harness.brokers.settings import TEST_SETTINGS

# Each password is long and unique, so that a search of all output finds every leak.
PASSWORDS = {
    "alice": "alice-77ac03de",
    "broker": "broker-4f0c2ad1",
    "operator": "operator-9b1e77c3",
    "member": "member-d85a06e2",
    "watcher": "watcher-c1f3a5d7",
}
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class SecuredBroker(JavaBroker):
    """A broker with SASL/PLAIN: ``operator`` is a super user; other users need ACLs."""

    def client_of(self, user):
        """Return the connection settings for a user."""
        return {
            "bootstrap_servers": [self.bootstrap],
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": user,
            "sasl_plain_password": PASSWORDS[user],
        }

    @property
    def client_config(self):
        """The operator's connection settings."""
        return self.client_of("operator")

    def _write_properties(self):
        controller = f"127.0.0.1:{reserved_port()}"
        users = " ".join(f'user_{name}="{word}"' for name, word in PASSWORDS.items())
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"SASL_PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,"
            "CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{_LOGIN} "
            f'username="broker" password="{PASSWORDS["broker"]}" {users};',
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer."
            "StandardAuthorizer",
            "super.users": "User:broker;User:operator;User:ANONYMOUS",
            "log.dirs": self._folder / "data",
            **TEST_SETTINGS,
        }
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        self._properties.write_text(text)


def allow(user, kind, name, *operations):
    """Return the ACLs that allow a user some operations on one resource."""
    return [
        ACL(
            principal=f"User:{user}",
            host="*",
            operation=one,
            permission_type=ACLPermissionType.ALLOW,
            resource_pattern=ResourcePattern(kind, name),
        )
        for one in operations
    ]


def properties(folder, team, user, password):
    file = folder / f"{user}.properties"
    file.write_text(
        f"bootstrap.servers={team.broker.bootstrap}\n"
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule "
        f'required username="{user}" password="{password}";\n'
    )
    return file


class Story:
    """A team whose control topics are created by a super user and used by alice."""

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
        """Return a command's options for this user's login and for the topic prefix."""
        login = ("--config", str(self.files[user]))
        return (*login, "--topic-prefix", self.prefix)

    def run(self, user, *arguments):
        return CliRunner().invoke(safeconsumer, [*arguments, *self.where(user)])

    def alice(self, *arguments):
        return self.run("alice", *arguments, "--group", self.team.group)

    def set_up(self):
        """Create the control topics, the printed ACLs, and further ACLs for members."""
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
