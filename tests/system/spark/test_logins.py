"""Secure clusters: control topics are read in with the JVM's own settings, or refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from safeconsumer.errors import ClientPropertyError
from safeconsumer.spark.logins import JvmLogins
from tests.harness.brokers import choice
from tests.harness.spark.lake import Lake
from tests.system.spark.locked import PASSWORD, TOKEN_LOGIN, LockedBroker
from tests.system.spark.test_control import Operator

pytestmark = [
    pytest.mark.spark,
    pytest.mark.real_broker,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        choice._why_no_java() is not None, reason="its own broker is Java"
    ),
]

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.fixture(scope="module")
def locked() -> Iterator[LockedBroker]:
    with LockedBroker() as broker:
        yield broker


@pytest.fixture
def operator(locked: LockedBroker) -> Iterator[Operator]:
    made = Operator(locked)
    with made.team:
        yield made


@pytest.fixture
def lake(
    spark: Any,  # noqa: ANN401 - pyspark's
    controller: Any,  # noqa: ANN401, ARG001 - registered, nothing held
    locked: LockedBroker,
    tmp_path: Path,
) -> Lake:
    return Lake(spark, locked, tmp_path)


def stores(broker: LockedBroker, kind: str, ending: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.locked,
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": broker.store(f"trust.{ending}"),
        "kafka.ssl.truststore.type": kind,
        "kafka.ssl.truststore.password": PASSWORD,
        "kafka.ssl.keystore.location": broker.store(f"client.{ending}"),
        "kafka.ssl.keystore.type": kind,
        "kafka.ssl.keystore.password": PASSWORD,
        "kafka.ssl.key.password": PASSWORD,
    }


def logged_in(broker: LockedBroker, mechanism: str, login: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.logged_in,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.location": broker.store("trust.jks"),
        "kafka.ssl.truststore.password": PASSWORD,
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": login,
    }


def every_way(broker: LockedBroker) -> dict[str, dict[str, str]]:
    token = f'{TOKEN_LOGIN} unsecuredLoginStringClaim_sub="alice";'
    password = f'{_PLAIN} username="alice" password="{PASSWORD}";'
    return {
        "JKS on both sides": stores(broker, "JKS", "jks"),
        "PKCS12 on both sides": stores(broker, "PKCS12", "p12"),
        "OAUTHBEARER": logged_in(broker, "OAUTHBEARER", token),
        "PLAIN over TLS": logged_in(broker, "PLAIN", password),
    }


@pytest.mark.parametrize(
    "way",
    ["JKS on both sides", "PKCS12 on both sides", "OAUTHBEARER", "PLAIN over TLS"],
)
def test_a_stream_and_its_holds_come_in_the_same_way(
    lake: Lake, operator: Operator, way: str
) -> None:
    """S1, S4: nothing is set for the control topics but what the stream has."""
    lake.produce(lake.orders, 5)
    lake.produce(lake.returns, 5)
    operator.hold(lake.orders)
    options = {**operator.options(), **every_way(operator.team.broker)[way]}
    lake.run(**options)
    assert lake.rows() == lake.produced(lake.returns)
    operator.lift(lake.orders)
    lake.run(**options)
    assert lake.rows() == lake.produced()


def refusal(spark: Any, **properties: str) -> str:  # noqa: ANN401 - pyspark's
    logins = JvmLogins(spark.sparkContext._gateway)
    named = {name.replace("_", "."): value for name, value in properties.items()}
    with pytest.raises(ClientPropertyError) as caught:
        logins.connect({"bootstrap.servers": "b:1", **named})
    return str(caught.value)


def test_a_way_in_that_cannot_be_carried_over_says_what_to_set(
    spark: Any,  # noqa: ANN401 - pyspark's
) -> None:
    """Kerberos, a login module of one's own, an engine of one's own."""
    login = f'{_PLAIN} secret="hunter2";'
    mine = "com.example.Engines"
    said = (
        refusal(spark, security_protocol="SASL_PLAINTEXT"),
        refusal(
            spark,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_jaas_config=login,
        ),
        refusal(spark, security_protocol="SSL", ssl_engine_factory_class=mine),
    )
    for text in said:
        assert "set holds.control.kafka.bootstrap.servers" in text
        assert "hunter2" not in text
    assert "sasl.mechanism=GSSAPI cannot be carried over" in said[0]
    assert "no username and password" in said[1]


def test_a_store_that_cannot_be_read_is_named(
    spark: Any,  # noqa: ANN401 - pyspark's
    locked: LockedBroker,
) -> None:
    """A wrong password, a file that is not there; the password is not told."""
    trust = locked.store("trust.jks")
    wrong = refusal(
        spark,
        security_protocol="SSL",
        ssl_truststore_location=trust,
        ssl_truststore_password="hunter2",  # noqa: S106 - a wrong one
    )
    assert f"ssl.truststore.location={trust} cannot be read" in wrong
    assert "password was incorrect" in wrong
    assert "hunter2" not in wrong
    missing = refusal(
        spark, security_protocol="SSL", ssl_truststore_location="/no/trust.jks"
    )
    assert "ssl.truststore.location=/no/trust.jks cannot be read" in missing


def test_without_a_trust_store_the_jvms_own_counts(
    spark: Any,  # noqa: ANN401 - pyspark's
) -> None:
    """Where a platform keeps its own authorities, the stream trusts them, and so do we."""
    logins = JvmLogins(spark.sparkContext._gateway)
    properties = {"bootstrap.servers": "b:1", "security.protocol": "SSL"}
    context = logins.connect(properties)["ssl_context"]
    assert len(context.get_ca_certs()) > 10


def test_pem_is_read_as_it_is(
    spark: Any,  # noqa: ANN401 - pyspark's
    locked: LockedBroker,
) -> None:
    """By its location or in the option itself, with the key and without."""
    logins = JvmLogins(spark.sparkContext._gateway)
    pem = logins._file(
        "keystore", locked.store("client.jks"), {"ssl.keystore.password": PASSWORD}
    ).decode()
    key, end, chain = pem.partition("-----END PRIVATE KEY-----\n")
    inline = {
        "bootstrap.servers": "b:1",
        "security.protocol": "SSL",
        "ssl.truststore.certificates": chain,
        "ssl.keystore.certificate.chain": chain,
        "ssl.keystore.key": key + end,
    }
    assert logins.connect(inline)["ssl_context"].cert_store_stats()["x509"] == 1
    file = locked.stores / "client-both.pem"
    file.write_text(pem)
    by_file = {
        "bootstrap.servers": "b:1",
        "security.protocol": "SSL",
        "ssl.truststore.location": str(file),
        "ssl.keystore.location": str(file),
    }
    assert logins.connect(by_file)["ssl_context"].cert_store_stats()["x509"] == 1
