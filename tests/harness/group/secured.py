"""A Java broker with passwords and ACLs."""

from kafka.admin import (
    ACL,
    ACLPermissionType,
    ResourcePattern,
)

from safeconsumer.testing._ports import free_port
from tests.harness.brokers.java import JavaBroker
from tests.harness.brokers.settings import TEST_SETTINGS

# Long, so that one that leaks is found wherever it is.
PASSWORDS = {
    "alice": "alice-77ac03de",
    "broker": "broker-4f0c2ad1",
    "operator": "operator-9b1e77c3",
    "member": "member-d85a06e2",
    "watcher": "watcher-c1f3a5d7",
}
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class SecuredBroker(JavaBroker):
    """SASL/PLAIN for ``operator``, a super user; the others have what ACLs allow."""

    def client_of(self, user):
        """Return how a user connects."""
        return {
            "bootstrap_servers": [self.bootstrap],
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": user,
            "sasl_plain_password": PASSWORDS[user],
        }

    @property
    def client_config(self):
        """The operator's connection."""
        return self.client_of("operator")

    def _write_properties(self):
        controller = f"127.0.0.1:{free_port()}"
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
