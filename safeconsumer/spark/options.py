"""Parses this package's options for the Spark source into one frozen value."""

from collections.abc import Mapping

from attrs import field, frozen

from safeconsumer.errors.base import ScopeSyntaxError, SparkSettingError
from safeconsumer.group import wire
from safeconsumer.group.settings import HOLDS_TOPIC, STATUS_TOPIC
from safeconsumer.holds import ranges
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.scope import Scope

# By default the official source waits 500 ms at the end of an idle log, and fetches 500
# records at a time; design/benchmarks.md has the figures.
TUNED: Mapping[str, str] = {
    "kafka.fetch.max.wait.ms": "20",
    "kafka.max.poll.records": "5000",
    "kafka.max.partition.fetch.bytes": str(4 << 20),
}

# The prefix of our options, even if misspelt (holdsGroup, hold.group); unknown options
# with this prefix are refused.
_PREFIX = "hold"
_CONTROL_CLIENT = "holds.control.kafka."
# Each option with its default, if it has one, and its meaning, for the reference page.
OPTIONS: Mapping[str, tuple[str, str]] = {
    "commitGroup": (
        "",
        "A separate consumer group in which the stream commits after each batch.",
    ),
    "holds": ("", "Fixed holds, with spaces between them: `orders:0-2,5 re:tmp.*`."),
    "holds.clockSkewMs": (
        "30000",
        "The delay with which an expired hold is lifted, because clocks may differ.",
    ),
    "holds.control": (
        "false",
        "`true` for a stream that obeys the holds of `holds.group`.",
    ),
    "holds.controlTimeoutMs": (
        "5000",
        "How long a plan waits for the holds topic; less than decisionTimeoutMs.",
    ),
    "holds.decisionTimeoutMs": (
        "10000",
        "How long Spark waits for a decision; without a decision no record is read.",
    ),
    "holds.group": ("", "The consumer group whose holds the stream obeys."),
    "holds.statusTopic": (
        STATUS_TOPIC,
        "The topic to which the stream reports; empty for no reports.",
    ),
    "holds.topic": (HOLDS_TOPIC, "The topic of the holds."),
}
# The options that require holds.control.
_OF_CONTROL = ("holds.group", "holds.statusTopic", "holds.topic")
# The largest accepted number of milliseconds: about 300 years.
_MAX_DIGITS = 13


@frozen(kw_only=True)
class SourceOptions:
    """
    The holds and limits that a stream must obey, from its options.

    Attributes:
        scopes: fixed holds.
        control: the holds topic, or None.
        status: the topic to which the stream reports, or None.
        group: the consumer group whose control records the stream obeys.
        control_timeout: the maximum number of seconds for which a plan waits for the
            holds topic.
        clock_skew: seconds by which holds of the holds topic expire late, because the
            clock of the driver's machine may be ahead.
        fails_on_loss: whether lost records fail the query.
        commit_group: the group to which progress is committed, or None.
        data_client: Java properties for clients of the cluster that is read; they may
            contain secrets, so the ``repr`` leaves them out.
        control_client: the same for the cluster of the control topics.
    """

    scopes: tuple[Scope, ...] = ()
    control: str | None = None
    status: str | None = None
    group: str = ""
    control_timeout: float = 5.0
    clock_skew: float = 30.0
    fails_on_loss: bool = True
    commit_group: str | None = None
    data_client: Mapping[str, str] = field(factory=dict, repr=False)
    control_client: Mapping[str, str] = field(factory=dict, repr=False)


def completed(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that make the source fast and that the program did not set."""
    given = {name.lower() for name in options}
    return {name: value for name, value in TUNED.items() if name not in given}


def parse(options: Mapping[str, str]) -> SourceOptions:
    """
    Read the options of one stream; their names are not case-sensitive, as in Spark.

    Raises:
        SparkSettingError: an option is unknown, contradicts another, or has an invalid
            value; the message names the option.
    """
    given = {name.lower(): value for name, value in options.items()}
    _refuse_unknown(options)
    decision = _seconds(given, "holds.decisionTimeoutMs", 1)  # an option of the shim
    patience = _seconds(given, "holds.controlTimeoutMs", 1)
    control, status = _control(given)
    if control is not None and patience >= decision:
        message = (
            "holds.controlTimeoutMs must be less than holds.decisionTimeoutMs: a plan "
            "waits for the holds topic, and the decision for the plan"
        )
        raise SparkSettingError(message)
    group = given.get("holds.group", "")
    if control is not None and not wire.is_group(group):
        message = (
            "holds.control needs holds.group, the consumer group whose holds are "
            f"obeyed: 1 to 1024 printable characters, not {group!r:.60}"
        )
        raise SparkSettingError(message)
    for name in _OF_CONTROL:
        if control is None and given.get(name.lower()):
            message = f"{name} needs holds.control=true"
            raise SparkSettingError(message)
    client = properties(given, "kafka.")
    return SourceOptions(
        scopes=_scopes(given.get("holds", "")),
        control=control,
        status=status,
        group=group,
        control_timeout=patience,
        clock_skew=_seconds(given, "holds.clockSkewMs"),
        commit_group=_commit_group(given, group),
        fails_on_loss=given.get("failondataloss", "true").strip().lower() != "false",
        data_client=client,
        control_client={**client, **properties(given, _CONTROL_CLIENT)},
    )


def _commit_group(given: Mapping[str, str], obeyed: str) -> str | None:
    name = given.get("commitgroup")
    if name is None:
        return None
    if not wire.is_group(name):
        message = (
            f"commitGroup must be 1 to 1024 printable characters, not {name!r:.60}"
        )
        raise SparkSettingError(message)
    if name == obeyed:
        message = (
            f"commitGroup and holds.group must differ: {name} has members, whose "
            "offsets a stream must not move"
        )
        raise SparkSettingError(message)
    return name


def _refuse_unknown(options: Mapping[str, str]) -> None:
    known = {name.lower() for name in OPTIONS}
    for name in options:
        lower = name.lower()
        is_ours = lower.startswith(_PREFIX)
        if is_ours and lower not in known and not lower.startswith(_CONTROL_CLIENT):
            message = (
                f"there is no option {name}; the options about holds are: {_list()}"
            )
            raise SparkSettingError(message)


def _list() -> str:
    return ", ".join((*OPTIONS, f"{_CONTROL_CLIENT}*"))


def _scopes(text: str) -> tuple[Scope, ...]:
    try:
        every = (one for word in text.split() for one in ranges.spread(word))
        return tuple(map(scopes.parse, every))
    except ScopeSyntaxError as error:
        message = (
            f"option holds: {error}; write scopes with spaces between them, for "
            'example "orders:3 returns re:tmp.*"'
        )
        raise SparkSettingError(message) from error


def _control(given: Mapping[str, str]) -> tuple[str | None, str | None]:
    text = given.get("holds.control", "false").strip()
    if text.lower() not in {"true", "false"}:
        message = (
            "holds.control is true or false: holds.topic names the holds topic, which "
            f"is the first one, and holds.statusTopic that of reports; not {text!r:.120}"
        )
        raise SparkSettingError(message)
    if text.lower() == "false":
        return None, None
    holds = _topic(given, "holds.topic", HOLDS_TOPIC)
    status = given.get("holds.statustopic", STATUS_TOPIC)
    if not status.strip():
        return holds, None
    status = _topic(given, "holds.statusTopic", STATUS_TOPIC)
    if status == holds:
        message = f"holds.topic and holds.statusTopic must differ: both are {holds}"
        raise SparkSettingError(message)
    return holds, status


def _topic(given: Mapping[str, str], name: str, default: str) -> str:
    topic = given.get(name.lower(), default).strip()
    try:
        scopes.topic(topic)
    except ScopeSyntaxError as error:
        message = f"option {name}: {error}"
        raise SparkSettingError(message) from error
    return topic


def _seconds(given: Mapping[str, str], name: str, least: int = 0) -> float:
    default, _ = OPTIONS[name]
    text = given.get(name.lower(), default)
    is_number = text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS
    if not is_number or int(text) < least:
        message = (
            f"{name} must be whole milliseconds, {least} or more, not {text!r:.60}"
        )
        raise SparkSettingError(message)
    return int(text) / 1000


def properties(given: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the options whose names begin with a prefix, without that prefix."""
    return {
        name.removeprefix(prefix): value
        for name, value in given.items()
        if name.startswith(prefix)
    }
