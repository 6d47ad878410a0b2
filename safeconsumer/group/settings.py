"""Defines ``Control``, a member's settings for group control."""

from collections.abc import Mapping
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from attrs import Attribute, field, frozen

from safeconsumer._checks import is_number
from safeconsumer.errors.base import ControlSettingError, ScopeSyntaxError
from safeconsumer.holds import scope as scopes

if TYPE_CHECKING:
    from safeconsumer.group.reports import Client
    from safeconsumer.holds.control import GroupControl

PREFIX = "__safeconsumer_"

_HOLDS, _STATUS = "holds_ops", "status"

HOLDS_TOPIC, STATUS_TOPIC = PREFIX + _HOLDS, PREFIX + _STATUS


def _is_topic(_self: object, attribute: "Attribute[Any]", value: object) -> None:
    if value is None and attribute.name == "status_topic":
        return
    try:
        scopes.topic(value)
    except ScopeSyntaxError as error:
        message = f"{attribute.name}: {error}"
        raise ControlSettingError(message) from error


def _is_known(_self: object, _attribute: object, value: object) -> None:
    if value not in ("hold", "run"):  # a tuple, as a list is unhashable
        message = f'unavailable must be "hold" or "run", not {value!r}'
        raise ControlSettingError(message)


def _seconds(value: object) -> object:
    return value.total_seconds() if isinstance(value, timedelta) else value


def _is_seconds(_self: object, attribute: "Attribute[Any]", value: object) -> None:
    may_be_zero = attribute.name in {"clock_skew", "start_timeout", "run_after"}
    if (
        not is_number(value)
        or cast("float", value) < 0
        or (value == 0 and not may_be_zero)
    ):
        message = (
            f"{attribute.name} must be a finite number of seconds, "
            f"{'0 or more' if may_be_zero else 'more than 0'}, not {value!r}"
        )
        raise ControlSettingError(message)


def _is_flag(_self: object, attribute: "Attribute[Any]", value: object) -> None:
    if not isinstance(value, bool):
        message = f"{attribute.name} must be True or False, not {value!r}"
        raise ControlSettingError(message)


def _copied(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else value


def _are_settings(_self: object, _attribute: object, value: object) -> None:
    if not isinstance(value, Mapping):
        what = type(value).__name__  # the value may be a password
        message = (
            f"client_configs must be a dict of kafka-python's settings, not {what}"
        )
        raise ControlSettingError(message)
    if value:  # checking client_configs imports kafka-python
        import_module("safeconsumer.group.clients").check(value)


@frozen(kw_only=True)
class Control:
    """
    Makes a member obey the holds that are stored in Kafka for its whole group.

    Attributes:
        holds_topic: the topic that stores the holds; clients that may write to it place
            and lift holds, and members only read it.
        status_topic: the topic that members write reports to; None for no reports.
        unavailable: how to treat newly assigned partitions while the holds topic cannot
            be read: ``hold`` keeps them quiet, ``run`` delivers them after
            ``run_after`` seconds. Partitions that were delivered before are still
            delivered, and held partitions stay held.
        run_after: seconds; used only with ``run``.
        clock_skew: seconds by which this machine's clock may differ from the broker's;
            an expired hold is lifted this many seconds late, and never early.
        status_interval: seconds between reports while nothing changes.
        check_interval: seconds between checks of the holds topic's settings, which are
            also checked when the reader connects. If the topic has become unfit, it
            counts as unavailable until it is repaired.
        start_timeout: the maximum seconds for which the consumer's constructor waits
            for the holds topic's settings; the constructor refuses a topic from which
            Kafka would delete holds.
        trust_topic: skip the check of those settings, for brokers that cannot return
            them; the member emits one warning about that.
        resets: whether this member resets its partitions' offsets if a hold on its
            group requests that. If False, operators can hold the group but cannot make
            it skip data; ``status`` shows this.
        client_configs: kafka-python settings for the control clients that differ from
            the consumer's own, such as a different ``sasl_plain_username``.

    Raises:
        ControlSettingError: a value is not acceptable.
    """

    holds_topic: str = field(default=HOLDS_TOPIC, validator=_is_topic)
    status_topic: str | None = field(default=STATUS_TOPIC, validator=_is_topic)
    unavailable: str = field(default="hold", validator=_is_known)
    run_after: float = field(default=30.0, converter=_seconds, validator=_is_seconds)
    clock_skew: float = field(default=30.0, converter=_seconds, validator=_is_seconds)
    status_interval: float = field(
        default=3.0, converter=_seconds, validator=_is_seconds
    )
    check_interval: float = field(
        default=300.0, converter=_seconds, validator=_is_seconds
    )
    start_timeout: float = field(default=5.0, converter=_seconds, validator=_is_seconds)
    trust_topic: bool = field(default=False, validator=_is_flag)
    resets: bool = field(default=True, validator=_is_flag)
    # Not in the repr, because the value may contain a password and programs print
    # settings.
    client_configs: Mapping[str, Any] = field(
        factory=dict, repr=False, converter=_copied, validator=_are_settings
    )

    def __attrs_post_init__(self) -> None:
        if self.holds_topic == self.status_topic:
            message = f"control topics must differ: both are {self.holds_topic}"
            raise ControlSettingError(message)

    @classmethod
    def prefixed(cls, prefix: str, **settings: Any) -> "Control":  # noqa: ANN401 - the fields
        """
        Return settings whose control topics have a name prefix, such as a team name.

        Clients that may write to a team's topics can lift the holds of every group that
        reads these topics.

        Raises:
            ControlSettingError: a value is not acceptable.
        """
        # Without this check, None from an unset variable would become part of a name.
        if not isinstance(prefix, str):
            message = f"prefix must be text, not {prefix!r}"
            raise ControlSettingError(message)
        return cls(
            holds_topic=prefix + _HOLDS, status_topic=prefix + _STATUS, **settings
        )

    @property
    def topics(self) -> tuple[str, ...]:
        """The holds topic, and the status topic if there is one."""
        status = self.status_topic
        return (self.holds_topic,) if status is None else (self.holds_topic, status)

    def attach(self, client: "Client", configs: Mapping[str, Any]) -> "GroupControl":
        """
        Start group control for one consumer that has no assigned partitions yet.

        Args:
            client: the interface to the consumer.
            configs: the consumer's kafka-python configuration.

        Raises:
            ControlSettingError: the configuration has no ``group_id``.
            ControlTopicError: the settings of the holds topic would let Kafka delete
                holds.
        """
        stock = import_module("safeconsumer.group.clients")
        clients = stock.control_clients(configs, self.client_configs)
        module = import_module("safeconsumer.group.member")
        attached: GroupControl = module.GroupControl(self, client, clients)
        attached.start()
        return attached
