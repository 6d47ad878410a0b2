"""A broker behind TLS: certificates on both sides, in Java's key stores, and logins."""

import shutil
import subprocess

from safeconsumer.testing._ports import free_port
from tests.harness.brokers.java import JavaBroker
from tests.harness.brokers.settings import TEST_SETTINGS

PASSWORD = "store-5f1b90ce"  # noqa: S105 - of a test's stores
_LOGIN = "org.apache.kafka.common.security"
TOKEN_LOGIN = f"{_LOGIN}.oauthbearer.OAuthBearerLoginModule required"


class LockedBroker(JavaBroker):
    """
    Plain text for the test itself, and TLS with client certificates for streams.

    Logins behind TLS are tokens, which nobody has signed, or PLAIN for ``alice``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.locked = f"localhost:{free_port()}"
        self.logged_in = f"localhost:{free_port()}"
        self.stores = self._folder / "stores"

    def store(self, name: str) -> str:
        """Return a store's path: ``trust`` or ``client``, ``.jks`` or ``.p12``."""
        return str(self.stores / name)

    def _write_properties(self) -> None:
        self._make_stores()
        controller = f"127.0.0.1:{free_port()}"
        where = f"PLAINTEXT://{self.bootstrap},SSL://{self.locked}"
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"{where},SASL_SSL://{self.logged_in},"
            f"CONTROLLER://{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,"
            "SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "ssl.keystore.location": self.store("server.jks"),
            "ssl.keystore.password": PASSWORD,
            "ssl.truststore.location": self.store("trust.jks"),
            "ssl.truststore.password": PASSWORD,
            "listener.name.ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "OAUTHBEARER,PLAIN",
            "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": f"{TOKEN_LOGIN};",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{plain} "
            f'user_alice="{PASSWORD}";',
            "log.dirs": self._folder / "data",
            **TEST_SETTINGS,
        }
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        self._properties.write_text(text)

    def _make_stores(self) -> None:
        self.stores.mkdir()
        for name in ("server", "client"):
            key = ["-alias", name, "-dname", f"CN={name}", "-keyalg", "RSA"]
            key += ["-ext", "san=dns:localhost", "-validity", "2"]
            self._keytool("-genkeypair", f"{name}.jks", "JKS", *key)
            file = self.store(f"{name}.pem")
            self._keytool(
                "-exportcert", f"{name}.jks", "JKS", "-alias", name, "-file", file
            )
            for trust, kind in (("trust.jks", "JKS"), ("trust.p12", "PKCS12")):
                entry = ["-noprompt", "-alias", name, "-file", file]
                self._keytool("-importcert", trust, kind, *entry)
        source = ["-srckeystore", self.store("client.jks"), "-srcstorepass", PASSWORD]
        source += ["-destkeystore", self.store("client.p12")]
        source += ["-deststoretype", "PKCS12", "-deststorepass", PASSWORD]
        self._run("-importkeystore", *source)

    def _keytool(self, command: str, store: str, kind: str, *more: str) -> None:
        where = ["-keystore", self.store(store), "-storetype", kind]
        self._run(command, *where, "-storepass", PASSWORD, *more)

    def _run(self, *arguments: str) -> None:
        keytool = shutil.which("keytool") or "keytool"
        done = subprocess.run(  # noqa: S603 - our own command line
            [keytool, *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
