"""
Keeps passwords and tokens out of kafka-python's log.

kafka-python 3.0.12 writes every request it sends at level DEBUG, the object and its
bytes: with SASL/PLAIN that is the password, with OAUTHBEARER the token. Its admin
client writes its whole configuration. A filter on those loggers hides them. It is
installed when one of our clients with a secret in its configuration is made, and works
from then on for all clients of the process; without one no logger is changed.
"""

import logging
import struct
from collections.abc import Iterator, Mapping

_LOGGERS = ("kafka.protocol.parser", "kafka.net.connection", "kafka.admin.client")

# Parts of the names of secret settings. Callables and providers print as objects.
_SECRET = ("password", "secret", "token")

# https://kafka.apache.org/protocol#protocol_api_keys: a request begins with its length
# and its key; 36 is SaslAuthenticate. Without such a key it is a login in the style
# before Kafka 1.0, which is sent bare: it begins with text.
_HEAD = struct.Struct(">iH")
_LOGIN, _MOST = 36, 0xFF
_HIDDEN = "<not shown>"


class _Hiding(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        """Let every line pass, with logins replaced."""
        if isinstance(record.args, tuple):
            record.args = tuple(map(_shown, record.args))
        elif isinstance(record.args, Mapping):  # logging unpacks a single one
            record.args = _settings(record.args)
        return True


def hide_logins_of(configs: Mapping[str, object]) -> None:
    """Install the filter if a client's settings have a login or another secret among them."""
    if any(_is_login_setting(name) and configs[name] for name in configs):
        hide_logins()


def hide_logins() -> None:
    """Install the filter; a second call changes nothing."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_HIDING)


_HIDING = _Hiding()


def _settings(given: Mapping[str, object]) -> dict[str, object]:
    return {name: _HIDDEN if _is_secret(name) else given[name] for name in given}


def _is_login_setting(name: str) -> bool:
    return name.startswith("sasl_") or _is_secret(name)


def _is_secret(name: object) -> bool:
    return any(word in str(name) for word in _SECRET)


def _shown(value: object) -> object:
    if isinstance(value, Mapping):
        return _settings(value)
    if isinstance(value, bytes | bytearray):
        return _HIDDEN if any(map(_is_login, _keys(value))) else value
    has_login = getattr(value, "auth_bytes", None) is not None
    # A bare login is a request that consists only of bytes.
    is_bare = type(value).__name__.startswith("SaslBytes")
    return _HIDDEN if has_login or is_bare else value


def _is_login(key: int) -> bool:
    return key == _LOGIN or key > _MOST


def _keys(data: bytes | bytearray) -> Iterator[int]:
    at = 0
    while at + _HEAD.size <= len(data):
        length, key = _HEAD.unpack_from(data, at)
        yield key
        at += 4 + max(length, 2)
