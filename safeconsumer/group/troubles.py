"""Translates errors from a cluster into kinds, descriptions and advice."""

import socket
import ssl
from collections.abc import Mapping
from enum import Enum

import kafka.errors as kafka_errors
from attrs import frozen

from safeconsumer.errors.base import ControlTopicError
from safeconsumer.group.topics import ACLS


class Kind(Enum):
    """The kinds of cluster errors, grouped by what the user can do."""

    AWAY = "no broker answers in time; trying again may help"
    REFUSED = "the broker refuses; trying again does not help"
    MISSING = "a topic that is named does not exist"
    SETTING = "a setting is not acceptable"
    SYSTEM = "this machine's own system refuses"


@frozen
class _Judgement:
    kind: Kind
    what: str
    do: str = ""


def kind_of(error: BaseException | None) -> Kind:
    """Return the kind of an error."""
    return _judged(error).kind


def error_text(error: BaseException) -> str:
    """Return a description of a cluster error with the broker's message and advice."""
    judged = _judged(error)
    words = f"{judged.what}: {_words(error)}"
    # The message of our own errors already contains the advice.
    return words if judged.do in words else f"{words}; {judged.do}"


def is_refused(error: BaseException | None) -> bool:
    """Return whether a broker denies this user access, or a control topic is unfit."""
    return isinstance(error, (kafka_errors.AuthorizationError, ControlTopicError))


def cannot_log_in(error: BaseException | None) -> bool:
    """Return whether a broker refused the login, or its certificate is not trusted."""
    return isinstance(error, _LOGIN) or _judged(error) is _NO_TLS


def _judged(error: BaseException | None) -> _Judgement:
    # The first matching row decides, because some of Kafka's errors match several.
    for kinds, judgement in _TABLE.items():
        if isinstance(error, kinds):
            return judgement
    if isinstance(error, ssl.SSLError) or _TLS in str(error):
        return _NO_TLS
    # kafka-python raises a broker error even for its own request timeout.
    is_own = _CLIENT_TIMEOUT in str(error)
    if isinstance(error, kafka_errors.BrokerResponseError) and not is_own:
        return _NOT_NOW if error.retriable else _BROKER_REFUSES
    if isinstance(error, kafka_errors.KafkaConfigurationError):
        return _SETTING
    if isinstance(error, OSError) and not isinstance(error, _NETWORK):
        return _OWN_SYSTEM
    return _NO_ANSWER


def _words(error: BaseException) -> str:
    words = str(error)
    if isinstance(error, kafka_errors.KafkaError):
        name = type(error).__name__
        words = str(error.args[0]) if error.args else name
        words = words if name in words else f"{name}: {words}"
    return (words or type(error).__name__)[:300]


_LOGIN = (
    kafka_errors.IllegalSaslStateError,
    kafka_errors.SaslAuthenticationFailedError,
    kafka_errors.UnsupportedSaslMechanismError,
)
_MISSING = (
    kafka_errors.InvalidTopicError,
    kafka_errors.UnknownTopicOrPartitionError,
)
_TLS = "[SSL"
_CLIENT_TIMEOUT = "Request timed out after"
_NETWORK = (ConnectionError, TimeoutError, socket.gaierror)
_NO_TLS = _Judgement(
    Kind.REFUSED,
    "no secure connection to the broker",
    "check security.protocol and ssl.* in --config",
)
_OWN_SYSTEM = _Judgement(Kind.SYSTEM, "this system refuses")
_NO_ANSWER = _Judgement(
    Kind.AWAY,
    "no answer from the broker",
    "check --bootstrap and, in --config, security.protocol",
)
_NOT_NOW = _Judgement(Kind.AWAY, "the broker cannot do it now", "try again")
_BROKER_REFUSES = _Judgement(Kind.REFUSED, "the broker refuses")
_SETTING = _Judgement(Kind.SETTING, "a setting is not acceptable")
_TABLE: Mapping[tuple[type[BaseException], ...], _Judgement] = {
    (ControlTopicError,): _Judgement(
        Kind.REFUSED,
        "a control topic is unfit",
        "safeconsumer control init",
    ),
    (kafka_errors.AuthorizationError,): _Judgement(
        Kind.REFUSED, "the broker refuses", ACLS
    ),
    _LOGIN: _Judgement(
        Kind.REFUSED,
        "the broker refuses the login",
        "check sasl.mechanism, user and password in --config",
    ),
    _MISSING: _Judgement(Kind.MISSING, "no such topic", "look for a typing error"),
    (kafka_errors.IncompatibleBrokerVersion,): _Judgement(
        Kind.REFUSED,
        "the broker cannot do that",
        "use Apache Kafka 2.3 or newer",
    ),
    (kafka_errors.UnknownBrokerIdError,): _Judgement(
        Kind.AWAY,
        "the cluster has no known controller",
        "try again",
    ),
}
