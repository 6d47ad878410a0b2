"""A consumer that pauses for longer than the lifetime of its OAUTHBEARER tokens."""

import pytest
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.protocol import sasl

from safeconsumer import SafeConsumer
from safeconsumer.testing import _protocol
from safeconsumer.testing._codes import RefusedError

LIFETIME = 600  # seconds
HOUR = 3600
SASL_AUTHENTICATION_FAILED = 58
# The time between two rounds of a poll's loop; with kafka-python's 100 ms an hour has
# 36,000 rounds.
IDLE_MS = 5_000
UNAUTHENTICATED = {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}


class Tokens(AbstractTokenProvider):
    """Returns tokens that contain the second in which they were issued."""

    def __init__(self, lab):
        self._lab = lab
        self.count = 0

    def token(self):
        self.count += 1
        return f"{self._lab.now:.0f}"


class TokenGuard:
    """
    Makes the cluster require tokens, and cut connections whose token has expired.

    Args:
        lab: the lab of the simulated world.
        patch: the test's monkeypatch.
        advertised: the lifetime in seconds that the broker reports; 0 if it reports
            none, so that clients do not authenticate again in time.
    """

    def __init__(self, lab, patch, advertised):
        self._lab, self._advertised = lab, advertised
        self._expiry = {}
        for name, key in (("SaslHandshake", 17), ("SaslAuthenticate", 36)):
            patch.setitem(_protocol.API_KEYS, name, key)
            patch.setitem(_protocol._REQUESTS, key, getattr(sasl, f"{name}Request"))
            patch.setitem(_protocol._RESPONSES, key, getattr(sasl, f"{name}Response"))
        self._serve = lab.cluster.serve
        lab.cluster.serve = self._guarded
        lab.cluster._handlers["SaslHandshake"] = self._shake_hands
        lab.cluster._handlers["SaslAuthenticate"] = self._authenticate

    def _guarded(self, connection, exchange):
        self._connection = connection
        is_late = self._lab.now > self._expiry.get(connection, 0)
        if is_late and exchange.message.api not in UNAUTHENTICATED:
            connection.cut()
        else:
            self._serve(connection, exchange)

    def _shake_hands(self, exchange):
        exchange.reply(mechanisms=["OAUTHBEARER"])

    def _authenticate(self, exchange):
        text = bytes(exchange.body.auth_bytes).decode()
        issued = float(text.partition("auth=Bearer ")[2].rstrip("\x01"))
        expiry = issued + LIFETIME
        if self._lab.now > expiry:
            raise RefusedError(SASL_AUTHENTICATION_FAILED)
        self._expiry[self._connection] = expiry
        lifetime_ms = self._advertised * 1000
        exchange.reply(auth_bytes=b"", session_lifetime_ms=lifetime_ms)


@pytest.mark.parametrize(
    "advertised", [LIFETIME, 0], ids=["authenticates-again", "is-cut-off"]
)
def test_pause_may_last_longer_than_the_tokens(lab, monkeypatch, advertised):
    """The client requests new tokens and stays in its group, and no record is lost."""
    TokenGuard(lab, monkeypatch, advertised)
    (tp,) = lab.topic("t", 1, records=5)
    tokens = Tokens(lab)
    a = lab.member(
        SafeConsumer,
        "t",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=tokens,
        poll_ms=IDLE_MS,
        retry_backoff_ms=IDLE_MS,
    )
    lab.until(lambda: len(a.records) == 5)
    a.call(lambda consumer: consumer.pause(tp))
    generation, count = lab.generation(), tokens.count
    lab.append(tp, 5, first=5)
    lab.sleep(HOUR)
    assert tokens.count >= count + HOUR // LIFETIME
    assert (len(a.records), lab.generation()) == (5, generation)
    a.call(lambda consumer: consumer.resume(tp))
    lab.until(lambda: len(a.records) == 10)
    assert a.values(tp) == list(range(10))
    a.stop()
