"""
Converts a stream's login settings to kafka-python's.

Java's clients keep keys in key stores and tokens behind callback handlers. The driver's
JVM, which opens them for the stream anyway, also opens them here.
"""

import importlib
import ssl
import tempfile
from base64 import encodebytes
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import frozen
from kafka.net.sasl.oauth import AbstractTokenProvider

from safeconsumer.errors import ClientPropertyError
from safeconsumer.group.properties import client_configs

Connect = Callable[[Mapping[str, str]], dict[str, Any]]

_PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_TOKENS = "OAUTHBEARER"
_KAFKA = "org.apache.kafka.common.security"
_UNSECURED = (
    f"{_KAFKA}.oauthbearer.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"
)
_PEM = b"-----BEGIN "
_ELSEWHERE = (
    "read the control topics with another login: set "
    "holds.control.kafka.bootstrap.servers, holds.control.kafka.security.protocol, "
    "holds.control.kafka.sasl.mechanism and holds.control.kafka.sasl.jaas.config to "
    "a listener with SCRAM-SHA-512, PLAIN, OAUTHBEARER or TLS"
)


def plain(properties: Mapping[str, str]) -> dict[str, Any]:
    """
    Return kafka-python's configuration for Java's properties, without using a JVM.

    Raises:
        ClientPropertyError: a property cannot be converted.
    """
    found = client_configs(properties)
    found["bootstrap_servers"] = str(found.get("bootstrap_servers", "")).split(",")
    return found


@frozen
class Stored:
    """The content of a key store: certificates, and the private key of the first one."""

    certificates: tuple[bytes, ...]
    key: bytes | None = None


class JvmLogins:
    """
    Reads what Java's properties refer to, with the JVM of Spark's driver.

    Thread rules: any thread.

    Args:
        gateway: the session's py4j gateway.
    """

    def __init__(self, gateway: Any) -> None:  # noqa: ANN401 - py4j is untyped
        self._gateway = gateway
        self._jvm = gateway.jvm

    def connect(self, properties: Mapping[str, str]) -> dict[str, Any]:
        """
        Return kafka-python's configuration for Java's properties.

        Raises:
            ClientPropertyError: a property cannot be converted, or a store or a login
                cannot be read; the message says what to set.
        """
        protocol = properties.get("security.protocol", "PLAINTEXT").upper()
        bare = {
            name: value
            for name, value in properties.items()
            if not name.startswith(("ssl.", "sasl."))
        }
        found = plain(bare)
        if protocol.endswith("SSL"):
            found["ssl_context"] = self._context(properties)
        if protocol.startswith("SASL_"):
            found |= self._login(properties)
        return found

    # ------------------------------------------------------------ TLS

    def _context(self, properties: Mapping[str, str]) -> ssl.SSLContext:
        if "ssl.engine.factory.class" in properties:
            message = f"ssl.engine.factory.class cannot be carried over; {_ELSEWHERE}"
            raise ClientPropertyError(message)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        name = "ssl.endpoint.identification.algorithm"
        context.check_hostname = bool(properties.get(name, "https"))
        _trust(context, self._trusted(properties))
        own = self._own(properties)
        if own:
            _identify(context, own, properties.get("ssl.key.password"))
        return context

    def _trusted(self, properties: Mapping[str, str]) -> bytes:
        inline = properties.get("ssl.truststore.certificates")
        if inline:
            return inline.encode()
        location = properties.get("ssl.truststore.location")
        if location:
            return self._file("truststore", location, properties)
        where, kind, password = self._default_trust()
        with _named(f"the JVM's trust store {where}"):
            return _as_pem(self._store(where, kind, password, None))

    def _own(self, properties: Mapping[str, str]) -> bytes:
        chain = properties.get("ssl.keystore.certificate.chain")
        key = properties.get("ssl.keystore.key")
        if chain and key:
            return f"{key}\n{chain}".encode()
        location = properties.get("ssl.keystore.location")
        return self._file("keystore", location, properties) if location else b""

    def _file(self, name: str, location: str, properties: Mapping[str, str]) -> bytes:
        """Read PEM as it is, and everything else as the JVM does."""
        kind = properties.get(f"ssl.{name}.type", "JKS")
        password = properties.get(f"ssl.{name}.password")
        of_key = properties.get("ssl.key.password", password)
        with _named(f"ssl.{name}.location={location}"):
            content = Path(location).read_bytes()
            if _PEM in content:
                return content
            of_keys = of_key if name == "keystore" else None
            return _as_pem(self._store(location, kind, password, of_keys))

    def _default_trust(self) -> tuple[str, str, str | None]:
        system = self._jvm.java.lang.System
        security = Path(system.getProperty("java.home"), "lib", "security")
        usual = [security / "jssecacerts", security / "cacerts"]
        there = next((one for one in usual if one.exists()), usual[-1])
        default = self._jvm.java.security.KeyStore.getDefaultType()
        return (
            system.getProperty("javax.net.ssl.trustStore") or str(there),
            system.getProperty("javax.net.ssl.trustStoreType") or default,
            system.getProperty("javax.net.ssl.trustStorePassword"),
        )

    def _store(
        self, location: str, kind: str, password: str | None, of_key: str | None
    ) -> Stored:
        jvm = self._jvm
        store = jvm.java.security.KeyStore.getInstance(kind)
        stream = jvm.java.io.FileInputStream(location)
        try:
            store.load(stream, self._chars(password))
        finally:
            stream.close()
        aliases = list(jvm.java.util.Collections.list(store.aliases()))
        for alias in aliases if of_key is not None else ():
            if store.isKeyEntry(alias):
                key = store.getKey(alias, self._chars(of_key))
                chain = store.getCertificateChain(alias)
                return Stored(
                    certificates=tuple(map(self._certificate, chain)),
                    key=bytes(self._called("java.security.Key", "getEncoded", key)),
                )
        found = (store.getCertificate(alias) for alias in aliases)
        return Stored(tuple(self._certificate(one) for one in found if one))

    def _chars(self, text: str | None) -> Any:  # noqa: ANN401 - py4j is untyped
        if text is None:
            return None
        return self._called("java.lang.String", "toCharArray", text)

    def _certificate(self, one: Any) -> bytes:  # noqa: ANN401 - py4j is untyped
        return bytes(self._called("java.security.cert.Certificate", "getEncoded", one))

    def _called(self, kind: str, name: str, one: Any) -> Any:  # noqa: ANN401 - py4j is untyped
        # By the public class: that of a certificate is hidden in its module. And py4j
        # turns every String into a str.
        java = self._jvm.java.lang
        none = self._gateway.new_array(java.Class, 0)
        method = java.Class.forName(kind).getMethod(name, none)
        return method.invoke(one, self._gateway.new_array(java.Object, 0))

    # ------------------------------------------------------------ SASL

    def _login(self, properties: Mapping[str, str]) -> dict[str, Any]:
        mechanism = properties.get("sasl.mechanism", "GSSAPI").upper()
        if mechanism == _TOKENS:
            tokens = Tokens(self._gateway, properties)
            with _named("sasl.jaas.config"):
                tokens.token()  # errors appear when the stream is opened
            return {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": tokens}
        if mechanism not in _PASSWORDS:
            message = f"sasl.mechanism={mechanism} cannot be carried over; {_ELSEWHERE}"
            raise ClientPropertyError(message)
        with _named("sasl.jaas.config"):
            values = _typed(self._jvm, properties)
            (entry, *_) = _entries(self._jvm, values)
            options = entry.getOptions()
            user, password = options.get("username"), options.get("password")
        if user is None or password is None:
            message = (
                "sasl.jaas.config has no username and password, and a callback handler "
                f"that brings them cannot be carried over; {_ELSEWHERE}"
            )
            raise ClientPropertyError(message)
        return {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": user,
            "sasl_plain_password": password,
        }


class Tokens(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python is untyped
    """Gets OAUTHBEARER tokens from the login callback handler of Java's client."""

    def __init__(self, gateway: Any, properties: Mapping[str, str]) -> None:  # noqa: ANN401 - py4j is untyped
        super().__init__()
        self._gateway = gateway
        self._properties = properties
        self._extensions: dict[str, str] = {}

    def token(self) -> str:
        """
        Return a new token; asks its issuer.

        Raises:
            ClientPropertyError: the issuer refuses; the message says why.
        """
        jvm = self._gateway.jvm
        values = _typed(jvm, self._properties)
        name = self._properties.get("sasl.login.callback.handler.class", _UNSECURED)
        handler = _class(jvm, name)()
        handler.configure(values, _TOKENS, _entries(jvm, values))
        try:
            return self._asked(handler)
        finally:
            handler.close()

    def _asked(self, handler: Any) -> str:  # noqa: ANN401 - py4j is untyped
        jvm = self._gateway.jvm
        callback = _class(jvm, f"{_KAFKA}.oauthbearer.OAuthBearerTokenCallback")()
        kind = jvm.javax.security.auth.callback.Callback
        callbacks = self._gateway.new_array(kind, 1)
        callbacks[0] = callback
        handler.handle(callbacks)
        token = callback.token()
        if token is None:
            message = (
                f"sasl.jaas.config: no token was given: {callback.errorDescription()}"
            )
            raise ClientPropertyError(message)
        return str(token.value())


def _typed(jvm: Any, properties: Mapping[str, str]) -> Any:  # noqa: ANN401 - py4j is untyped
    """Return a map of Java's with the types that Kafka's own classes expect."""
    given = jvm.java.util.HashMap()
    for name, value in properties.items():
        given.put(name, value)
    parsed = _class(jvm, "org.apache.kafka.clients.admin.AdminClientConfig")(given)
    given.putAll(parsed.values())
    return given


def _entries(jvm: Any, values: Any) -> Any:  # noqa: ANN401 - py4j is untyped
    """Return what ``sasl.jaas.config`` says, or the JVM's own JAAS file."""
    context = _class(jvm, f"{_KAFKA}.JaasContext").loadClientContext(values)
    return jvm.java.util.ArrayList(context.configurationEntries())


def _class(jvm: Any, name: str) -> Any:  # noqa: ANN401 - py4j is untyped
    found = jvm
    for part in name.split("."):
        found = getattr(found, part)
    return found


@contextmanager
def _named(what: str) -> Iterator[None]:
    errors = importlib.import_module("py4j.protocol")
    try:
        yield
    except errors.Py4JJavaError as error:
        message = f"{what} cannot be read: {error.java_exception.toString()}"
        raise ClientPropertyError(
            message
        ) from None  # the cause would print Java's stack
    except (errors.Py4JError, OSError, TypeError) as error:
        message = f"{what} cannot be read: {error}"
        raise ClientPropertyError(message) from error


def _as_pem(stored: Stored) -> bytes:
    chain = "".join(map(ssl.DER_cert_to_PEM_cert, stored.certificates)).encode()
    if stored.key is None:
        return chain
    frame = b"-----%s PRIVATE KEY-----\n"
    return frame % b"BEGIN" + encodebytes(stored.key) + frame % b"END" + chain


def _trust(context: ssl.SSLContext, pem: bytes) -> None:
    try:
        context.load_verify_locations(cadata=pem.decode("latin-1"))
    except ssl.SSLError as error:
        message = f"ssl.truststore has no certificate that can be read: {error}"
        raise ClientPropertyError(message) from error


def _identify(context: ssl.SSLContext, pem: bytes, password: str | None) -> None:
    # Python reads keys only from files; this one is private, and deleted at once.
    with tempfile.NamedTemporaryFile() as file:
        file.write(pem)
        file.flush()
        try:
            # Without a password it would ask for one at the terminal.
            context.load_cert_chain(file.name, password=password or "")
        except ssl.SSLError as error:
            message = f"ssl.keystore has no key that can be read: {error}"
            raise ClientPropertyError(message) from error
