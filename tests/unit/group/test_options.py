"""Tests command options without a broker."""

import json
import socket

import pytest
from click.testing import CliRunner
from kafka.net.manager import KafkaConnectionManager

from safeconsumer.cli.commands import safeconsumer
from safeconsumer.cli.errors import Status
from safeconsumer.errors import (
    ClientPropertyError,
    ControlSettingError,
    ScopeSyntaxError,
)
from safeconsumer.group import clients
from safeconsumer.group.durations import duration_text, parse_duration
from safeconsumer.group.properties import client_configs, read_properties
from safeconsumer.group.scopes import scopes_of
from safeconsumer.group.settings import PREFIX, Control
from tests.harness.listing import short

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="alice" password="a\\"b c";'
)


# The properties of the Java clients of Kafka 4.1.
JAVA = """
bootstrap.servers client.id client.rack client.dns.lookup metadata.max.age.ms
metadata.recovery.strategy metadata.recovery.rebootstrap.trigger.ms metric.reporters
metrics.num.samples metrics.recording.level metrics.sample.window.ms
receive.buffer.bytes send.buffer.bytes reconnect.backoff.ms reconnect.backoff.max.ms
retry.backoff.ms retry.backoff.max.ms request.timeout.ms default.api.timeout.ms
connections.max.idle.ms socket.connection.setup.timeout.ms
socket.connection.setup.timeout.max.ms retries security.protocol security.providers
enable.metrics.push auto.include.jmx.reporter bootstrap.controllers
sasl.client.callback.handler.class sasl.jaas.config sasl.kerberos.kinit.cmd
sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name
sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms
sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds
sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms
sasl.login.retry.backoff.ms sasl.mechanism sasl.oauthbearer.clock.skew.seconds
sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
sasl.oauthbearer.token.endpoint.url sasl.oauthbearer.scope
sasl.oauthbearer.client.credentials.client.id
sasl.oauthbearer.client.credentials.client.secret
sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class
ssl.cipher.suites ssl.enabled.protocols ssl.endpoint.identification.algorithm
ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm
ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location
ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider
ssl.secure.random.implementation ssl.trustmanager.algorithm
ssl.truststore.certificates ssl.truststore.location ssl.truststore.password
ssl.truststore.type group.id group.instance.id group.protocol group.remote.assignor
max.poll.records max.poll.interval.ms session.timeout.ms heartbeat.interval.ms
enable.auto.commit auto.commit.interval.ms partition.assignment.strategy
auto.offset.reset fetch.min.bytes fetch.max.bytes fetch.max.wait.ms
max.partition.fetch.bytes check.crcs interceptor.classes key.deserializer
value.deserializer exclude.internal.topics isolation.level allow.auto.create.topics
internal.leave.group.on.close acks batch.size buffer.memory compression.type
compression.gzip.level compression.lz4.level compression.zstd.level
delivery.timeout.ms enable.idempotence key.serializer value.serializer linger.ms
max.block.ms max.in.flight.requests.per.connection max.request.size
metadata.max.idle.ms partitioner.class partitioner.ignore.keys
partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms
transaction.timeout.ms transactional.id transaction.two.phase.commit.enable
config.providers
"""


def run(*arguments, **environment):
    """Run a command with these environment variables."""
    return CliRunner().invoke(safeconsumer, arguments, env=environment)


def test_properties_of_java_clients_are_converted_to_settings():
    text = (
        "# a comment\n! another\n\nbootstrap.servers = a:1,\\\n    b:2\n"
        "security.protocol: SASL_SSL\nsasl.mechanism=PLAIN\n"
        f"sasl.jaas.config={JAAS}\nssl.truststore.location=/ca.pem\n"
        "ssl.keystore.location=/key.pem\nssl.key.password=secret\n"
        "ssl.endpoint.identification.algorithm=\nacks=all\nretry.backoff.ms=50\n"
    )
    expected = {
        "bootstrap_servers": "a:1,b:2",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": 'a"b c',
        "ssl_cafile": "/ca.pem",
        "ssl_certfile": "/key.pem",
        "ssl_keyfile": "/key.pem",
        "ssl_password": "secret",
        "ssl_check_hostname": False,
        "retry_backoff_ms": 50,
    }
    assert client_configs(read_properties(text)) == expected


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"ssl.truststore.location": "/trust.jks"}, "convert it to PEM"),
        ({"sasl.jaas.config": "Krb5LoginModule required;"}, "username"),
        ({"sasl.jaas.config": 'PlainLoginModule username="a";'}, "and password"),
        ({"retry.backoff.ms": "soon"}, "must be a number"),
        ({"ssl.keystore.key": "-----BEGIN"}, "^ssl.keystore.key cannot be converted"),
    ],
    ids=short,
)
def test_property_without_a_counterpart_is_refused(properties, message):
    with pytest.raises(ClientPropertyError, match=message):
        client_configs(properties)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("security.protocols", "security.protocol"),
        ("security_protocol", "security.protocol"),
        ("security,protocol", "security.protocol"),
        ("bootstrap.server", "bootstrap.servers"),
        ("sasl.mechanisms", "sasl.mechanism"),
        ("sasl.jass.config", "sasl.jaas.config"),
        ("ssl.trustore.location", "ssl.truststore.location"),
    ],
)
def test_misspelt_property_is_refused_with_a_suggestion(typed, meant):
    with pytest.raises(ClientPropertyError, match=f"{typed}; did you mean {meant}"):
        client_configs({typed: "x"})


def test_valid_properties_of_java_clients_do_not_count_as_misspelt():
    """One file may serve all of Kafka's tools."""

    def refusal(name):
        try:
            client_configs({name: "1"})
        except ClientPropertyError as error:
            return str(error)
        return ""

    assert [name for name in JAVA.split() if "did you mean" in refusal(name)] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", 90),
        ("30m", 1800),
        ("2h", 7200),
        ("1d", 86400),
        ("1w", 604800),
        ("1w2d", 777600),
        ("1h30m", 5400),
        ("0.5s", 0.5),
    ],
)
def test_durations_are_read_as_seconds(text, expected):
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "5", "2 h", "h", "-1s", "0s", "0.0001s", "1y", "1s ", "٣s", "99999w"],
    ids=short,
)
def test_bad_durations_are_refused(text):
    with pytest.raises(ValueError, match=r"write|leave"):
        parse_duration(text)


def test_durations_are_printed_with_units():
    assert [duration_text(n) for n in (0, 59, 90, 7200, 90061, 604800)] == [
        "0s", "59s", "1m30s", "2h", "1d1h", "1w",
    ]  # fmt: skip


@pytest.mark.parametrize("message", ["alice", "User:", ":alice", "User:ali*"])
def test_invalid_principal_is_refused(message):
    """An ACL for an invalid principal would have no effect."""
    for option in ("--operators", "--members"):
        ended = run("control", "acls", option, message)
        assert ended.exit_code == Status.USAGE
        assert f"{message!r} is not a principal: write it as User:alice" in ended.stderr


def test_printed_acls_let_an_operator_replay_dead_letters():
    ended = run("control", "acls", "--operators=User:alice")
    assert (
        "--allow-principal User:alice --operation Read --group safeconsumer-replay- "
        "--resource-pattern-type prefixed\n"
    ) in ended.stdout


def test_printed_acls_let_an_operator_commit_for_a_group():
    """The broker requires Read on the group and on its topics."""
    found = json.loads(
        run("control", "acls", "--group=g", "--topic=t", "-o", "json").stdout
    )
    reading = {
        (one["resource_type"], one["name"])
        for one in found
        if one["operations"] == ["Read"] and one["principal"] == "User:OPERATOR"
    }
    assert reading >= {("group", "g"), ("topic", "t")}


def test_wildcard_is_accepted_as_a_principal():
    ended = run("control", "acls", "--members=User:*")
    assert ended.exit_code == Status.DONE, ended.output
    assert "--allow-principal 'User:*'" in ended.stdout


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("status", ()),
        ("history", ()),
        ("doctor", ()),
        ("wait", ("quiet",)),
        ("resume", ("orders",)),
        ("pause", ("orders", "--reason", "x")),
        ("extend", ("orders", "--for", "1h")),
    ],
    ids=short,
)
def test_invalid_group_is_reported_in_one_line(command, more):
    """The command fails before it contacts a broker."""
    for group in ("", "bill\udcff", "b\nad", "x" * 40_000):
        arguments = [command, *more, "--group", group, "--bootstrap", "127.0.0.1:1"]
        ended = run(*arguments)
        assert (ended.exit_code, ended.stderr.count("\n")) == (Status.USAGE, 1)
        assert "a group must be printable text of 1 to 1024 characters" in ended.stderr
        assert len(ended.stderr) < 200


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("orders", "a b", "--future"), "is not a topic name"),
        (("orders:x",), "write it as topic:number"),
        (("orders*",), "; a pattern is re:orders.*"),
        (("re:(",), "not an RE2 pattern"),
        (("re:(a)\\1",), "not an RE2 pattern"),
        (("orders", "--for", "0s"), "is not longer than 0"),
        (("orders", "--for", "soon"), ": --for: 'soon' is not a duration"),
        (("orders", "--owner", "operator:"), "owner must be 1 to"),
        (("orders", "--reason", "bell\x07"), "control characters"),
    ],
    ids=short,
)
def test_invalid_hold_is_reported_in_one_line_without_a_broker(arguments, message):
    where = ("--group", "g", "--reason", "x", "--bootstrap", "127.0.0.1:1")
    ended = run("pause", *where, *arguments)
    assert (ended.exit_code, ended.stdout) == (Status.USAGE, "")
    assert ended.stderr.count("\n") == 1
    assert message in ended.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("extend", "--for", "10"), "--for: '10' is not a duration"),
        (("reset-offsets", "--to", "--5"), "--to: not '--5': write earliest"),
    ],
    ids=short,
)
def test_error_about_an_invalid_value_names_its_option(words, says):
    command, *value = words
    where = ("--group", "g", "--bootstrap", "127.0.0.1:1")
    ended = run(command, "orders", *value, *where)
    assert (ended.exit_code, ended.stdout) == (Status.USAGE, "")
    assert ended.stderr.startswith(f"safeconsumer: {says}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("orders",), "name a state: wait quiet, wait flowing, or wait moved"),
        (("quiet", "--timeout", "0s"), "no answer from the broker"),
        (("quiet", "--timeout", "soon"), "--timeout: 'soon' is not a duration"),
    ],
    ids=short,
)
def test_wait_with_bad_arguments_or_no_broker_prints_the_reason(words, message):
    arguments = ["wait", *words, "--group", "g", "--bootstrap", "127.0.0.1:1"]
    ended = run(*arguments)
    assert message in ended.stderr


@pytest.mark.parametrize(
    "command", [("history",), ("dead-letters", "list", "t"), ("doctor",)], ids=short
)
def test_command_fails_quickly_without_a_broker(command, monkeypatch):
    """kafka-python's own time limit is half a minute."""
    monkeypatch.setattr(clients, "BOOTSTRAP_MS", 500)
    limits, bootstrap = set(), KafkaConnectionManager.bootstrap

    def limited(manager, limit):
        limits.add(limit)
        return bootstrap(manager, limit)

    monkeypatch.setattr(KafkaConnectionManager, "bootstrap", limited)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # the port has no listener
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = run(*command, "--bootstrap", address)
    assert limits == {500}
    assert (ended.exit_code, ended.stderr.count("\n")) == (Status.UNREACHABLE, 1)
    assert "ECONNREFUSED" in ended.stderr
    assert "check --bootstrap" in ended.stderr


@pytest.mark.parametrize(
    ("servers", "message"),
    [
        ("here:abc", "is not HOST:PORT"),
        ("a:9092,b:0", "is not HOST:PORT"),
        ("c:65536", "is not HOST:PORT"),
        ("d:", "is not HOST:PORT"),
        ("http://kafka:9092", "is not HOST:PORT"),
        ("https://kafka", "is not HOST:PORT"),
        (",", "--bootstrap HOST:PORT"),
        (" , ", "--bootstrap HOST:PORT"),
    ],
)
def test_bad_address_is_reported_in_one_line(servers, message):
    ended = run("status", "--group", "g", "--bootstrap", servers)
    assert (ended.exit_code, ended.stderr.count("\n")) == (Status.USAGE, 1)
    assert message in ended.stderr


NOBODY = b"bootstrap.servers=127.0.0.1:1\n"


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        (
            # The file has no bootstrap.servers, and the command line has no --bootstrap.
            b"security.protocol=PLAINTEXT",
            "no cluster given: FILE has no bootstrap.servers; add it, or use --bootstrap",
        ),
        (b"\xff\xfe\x00", "FILE cannot be read"),
        (NOBODY + b"security.protocol=SASL", "SASL is not one of PLAINTEXT"),
        (NOBODY + b"sasl.mechanism=plain", "sasl.mechanism=plain is not one of"),
        (
            NOBODY + b"ssl.truststore.location=/no/ca.pem",
            "the file /no/ca.pem does not exist or cannot be read",
        ),
    ],
    ids=short,
)
def test_config_file_is_checked_before_a_broker_is_contacted(
    tmp_path, properties, message
):
    file = tmp_path / "client.properties"
    file.write_bytes(properties)
    ended = run("history", "--config", str(file))
    assert (ended.exit_code, ended.stderr.count("\n")) == (Status.USAGE, 1)
    assert message.replace("FILE", str(file)) in ended.stderr


@pytest.mark.parametrize(
    ("typed", "exported", "address"),
    [
        ("", "BOOTSTRAP=own:x", "own:x"),
        ("", "CONFIG=HERE/client.properties", "login:x"),
        ("", "BOOTSTRAP=own:x CONFIG=HERE/client.properties", "own:x"),
        ("--bootstrap mine:x", "", "mine:x"),
        ("--bootstrap mine:x", "CONFIG=HERE/client.properties", "mine:x"),
        # The credentials in a file named by --config must not be sent to an address from the
        # environment, because the file names its own cluster.
        ("--config HERE/client.properties", "", "login:x"),
        ("--config HERE/client.properties", "BOOTSTRAP=own:x", "login:x"),
        ("--config HERE/client.properties --bootstrap mine:x", "", "mine:x"),
        ("--config HERE/no-address.properties", "BOOTSTRAP=own:x", "own:x"),
    ],
    ids=short,
)
def test_command_line_options_take_precedence_over_environment_variables(
    tmp_path, typed, exported, address
):
    (tmp_path / "client.properties").write_text("bootstrap.servers=login:x\n")
    (tmp_path / "no-address.properties").write_text("client.id=x\n")
    arguments, environment = (
        several.replace("HERE", str(tmp_path)).split() for several in (typed, exported)
    )
    variables = dict(one.split("=") for one in environment)
    exports = {f"SAFECONSUMER_{name}": one for name, one in variables.items()}
    ended = run("history", *arguments, **exports)
    assert ended.exit_code == Status.USAGE
    assert f"'{address}' is not HOST:PORT" in ended.stderr


def test_prefix_sets_the_names_of_the_control_topics():
    settings = Control.prefixed("payments_", clock_skew=5)
    assert settings.topics == ("payments_holds_ops", "payments_status")
    assert (settings.status_topic, settings.clock_skew) == ("payments_status", 5.0)
    assert Control.prefixed(PREFIX) == Control()


@pytest.mark.parametrize("prefix", [None, 5, b"payments_"], ids=short)
def test_prefix_that_is_not_text_is_refused(prefix):
    """``os.environ.get(...)`` may return None."""
    with pytest.raises(ControlSettingError, match="prefix must be text, not "):
        Control.prefixed(prefix)


# ---------------------------------------------------------------- scopes on the command line


def test_range_becomes_a_hold_for_each_partition():
    scopes = scopes_of(["a:0-2,5", "b:7", "a:1", "c"], "g")
    assert [*map(str, scopes)] == ["a:0", "a:1", "a:2", "a:5", "b:7", "c"]


def test_ranges_in_a_topic_named_re_become_holds_of_its_partitions():
    """A topic named ``re`` is not read as a pattern."""
    scopes = scopes_of(["re:re:0-1,5", "re:0-2", "re:re:7"], "g")
    assert [*map(str, scopes)] == ["re:re:0", "re:re:1", "re:re:5", "re:0-2", "re:re:7"]
    assert [one.covers(("re", 1)) for one in scopes] == [0, 1, 0, 0, 0]
    assert [one.covers(("0-2", 1)) for one in scopes] == [0, 0, 0, 1, 0]


@pytest.mark.parametrize(
    "text",
    ["a:2-1", "a:0-5000", "a:1-", "a:0-٣", f"a:0-{5000 * '9'}", f"a:1-{'9' * 5000}"],
)
def test_bad_ranges_are_refused(text):
    with pytest.raises(ScopeSyntaxError, match="a:"):
        scopes_of([text], "g")
