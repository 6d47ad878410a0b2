"""
Defines the alert rules: what each one means, and what to do about it.
"""

import json
from collections.abc import Iterator

from attrs import frozen

from safeconsumer.metrics.table import PREFIX

RUNBOOK = "runbook.md"


@frozen(kw_only=True)
class Alert:
    """
    One alert rule.

    Attributes:
        name: the alert's name.
        expr: PromQL; ``{p}`` stands for the prefix of all metrics.
        for_: for how long it must be true, as Prometheus writes it.
        severity: ``critical``, ``warning`` or ``info``.
        summary: one line, a template of Prometheus.
        meaning: the situation when it fires.
        action: what to do then.
    """

    name: str
    expr: str
    for_: str
    severity: str
    summary: str
    meaning: str
    action: str

    @property
    def query(self) -> str:
        """
        The expression for Prometheus.
        """
        return self.expr.replace("{p}", PREFIX)


ALERTS = (
    Alert(
        name="HoldNotObeyed",
        expr="max without (instance, pod, state) "
        '({p}group_partitions{state="held_flowing"}) > 0',
        for_="1m",
        severity="critical",
        summary="Held partitions of {{ $labels.group }} that are delivered all the "
        "same: {{ $value }}",
        meaning="A hold covers the partitions, and records are delivered all the same: "
        "their owner says so and has read the hold, or it reports nothing, as a plain "
        "client, and commits further and further. Of a plain client that commits "
        "nothing to Kafka nobody can tell: MembersSilentWhileHeld fires for it.",
        action="`safeconsumer status --group GROUP` names partitions and owners. A "
        "plain client: stop it, or give it safeconsumer. A member of ours: a handler "
        "that still works ends by itself; else stop the process, and report a defect.",
    ),
    Alert(
        name="MembersSilentWhileHeld",
        expr="max without (instance, pod) (sum without (state) "
        '({p}group_members{state=~"silent|unavailable"}) > 0 '
        "and sum without (source) ({p}group_holds) > 0)",
        for_="2m",
        severity="warning",
        summary="Members of {{ $labels.group }} that do not say whether they obey its "
        "holds: {{ $value }}",
        meaning="The group is held, and some members report nothing, or that they "
        "cannot read the control topics. Nobody can tell whether they are quiet.",
        action="`safeconsumer doctor --group GROUP` says why: a plain client, a "
        "missing ACL on a control topic, an older version, a member that hangs.",
    ),
    Alert(
        name="HoldUnconfirmed",
        expr="max without (instance, pod) ({p}group_quiet) == 0 "
        "unless max without (instance, pod, state) "
        '({p}group_partitions{state="held_flowing"}) > 0 '
        "unless max without (instance, pod) (sum without (state) "
        '({p}group_members{state=~"silent|unavailable"})) > 0',
        for_="5m",
        severity="warning",
        summary="What is held of {{ $labels.group }} is not known to be quiet",
        meaning="The group has been held for five minutes, and nobody can tell whether "
        "it obeys, or it has not got there yet.",
        action="`safeconsumer status --group GROUP` and `safeconsumer doctor --group "
        "GROUP` say why: the console may not read the status topic or describe the "
        "group, a member is behind, or a handler still works on a record.",
    ),
    Alert(
        name="ControlUnavailable",
        expr="{p}control_ready == 0",
        for_="2m",
        severity="critical",
        summary="{{ $labels.instance }} cannot read the control topics",
        meaning="The member keeps the holds that it knew; new holds and resumes do not "
        'reach it. Partitions that it gains wait, with `unavailable="run"` only for a '
        "while. One that was closed is not meant.",
        action="Look for `control_unavailable` in its log: it has the reason. Check "
        "the topics, their ACLs and the cluster with `safeconsumer doctor`.",
    ),
    Alert(
        name="GatesOpenedUnread",
        expr="increase({p}gates_opened_unread_total[15m]) > 0",
        for_="0m",
        severity="warning",
        summary="{{ $labels.instance }} delivers partitions without having read the "
        "holds",
        meaning='With `unavailable="run"` partitions flow after a while though the '
        "control topics could not be read: a hold may not be obeyed.",
        action="Do as for ControlUnavailable. If what is held must never flow, use "
        '`unavailable="hold"`, the default.',
    ),
    Alert(
        name="PauseForgotten",
        expr='increase({p}alarms_total{event="pause_forgotten"}[1h]) > 0',
        for_="0m",
        severity="critical",
        summary="{{ $labels.instance }} woke a partition that nobody had resumed",
        meaning="A pause ended in a rebalance though nobody lifted it. It never "
        "happens; if it does, it is a defect of safeconsumer.",
        action="Pause again. Report it with the lines around `pause_forgotten` in the "
        "log, and the delivery journal if there is one.",
    ),
    Alert(
        name="HeldRecordsHandedOver",
        expr="increase({p}worker_leaked_total[1h]) > 0",
        for_="0m",
        severity="critical",
        summary="The worker of {{ $labels.instance }} got records in spite of a hold",
        meaning="The consumer gave its worker records of a partition that was held. "
        "It never happens; if it does, it is a defect of safeconsumer.",
        action="Stop the worker if what is held must not be touched. Report it with "
        "its log, and the delivery journal if there is one.",
    ),
    Alert(
        name="ControlTopicReset",
        expr="increase({p}control_resets_total[1h]) > 0",
        for_="0m",
        severity="critical",
        summary="{{ $labels.instance }} found a control topic made again, or cut off",
        meaning="Members keep the holds that they knew, until somebody lifts them. "
        "Members that start now do not know them, and deliver.",
        action="`control_topic_reset` in the log names the topic. Compare what "
        "`safeconsumer status --group GROUP` still shows with what ought to be held, "
        "and place what is missing again.",
    ),
    Alert(
        name="HeldDataAtRisk",
        expr="min without (instance, pod) ({p}group_retention_margin_seconds) "
        "< 6 * 3600",
        for_="5m",
        severity="critical",
        summary="{{ if gt $value 0.0 }}In {{ $value | humanizeDuration }} retention "
        "may begin to delete{{ else }}Retention may have deleted{{ end }} records that "
        "{{ $labels.group }} has not read",
        meaning="Records that came since the hold was placed reach the retention of "
        "their topic by age. What is deleted is never delivered. Where the topic has "
        "`retention.bytes`, that may delete them earlier, and no alert tells of it.",
        action="Resume, raise `retention.ms` of the topic, or copy the records first: "
        "`safeconsumer archive --help`.",
    ),
    Alert(
        name="UnlimitedHoldOver24h",
        expr="time() - min without (instance, pod) "
        "({p}group_oldest_unlimited_hold_timestamp_seconds) > 86400",
        for_="5m",
        severity="warning",
        summary="A hold of {{ $labels.group }} without an end has stood for "
        "{{ $value | humanizeDuration }}",
        meaning="A hold that never expires was placed more than 24 hours ago: perhaps "
        "nobody remembers it.",
        action="`safeconsumer status --group GROUP` says who placed it and why. Lift "
        "it: `safeconsumer resume --group GROUP --owner OWNER SCOPE`, with "
        "`--from-group` if it is a member's (`group:OWNER`). Or give it an end: "
        "`safeconsumer pause --group GROUP --owner OWNER --replace --for 8h --reason "
        "WHY SCOPE`.",
    ),
    Alert(
        name="ConsoleKnowsTooLittle",
        expr="min without (instance, pod) ({p}console_snapshot_age_seconds) > 60 or "
        "min without (instance, pod) ({p}console_omitted_series) > 0",
        for_="2m",
        severity="warning",
        summary="The console of {{ $labels.job }} does not say all of each group",
        meaning="It has heard nothing new for a minute, and then it says nothing of "
        "groups; or there are too many series, and it leaves out some of held topics "
        "and of groups that are not held. What it does not say no rule about groups "
        "sees, and no lag alert is mute about it.",
        action="Its pages say why it hears nothing; `safeconsumer doctor` looks at "
        "topics and ACLs. How many series are left out is "
        "`safeconsumer_console_omitted_series`; for such a group ask `safeconsumer "
        "status --group GROUP`.",
    ),
    Alert(
        name="HoldExpiresSoon",
        expr="(min without (instance, pod) "
        "({p}group_next_expiry_timestamp_seconds) - time() < 900) > 0 and "
        "min without (instance, pod) ({p}group_next_expiry_timestamp_seconds) == "
        "min without (instance, pod) "
        "({p}group_next_expiry_timestamp_seconds offset 15m)",
        for_="0m",
        severity="info",
        summary="A hold of {{ $labels.group }} ends in {{ $value | humanizeDuration }}",
        meaning="The next hold of the group expires within 15 minutes; then its "
        "partitions flow. What was placed or extended in the last 15 minutes is not "
        "meant: somebody wants it so.",
        action="If that is too early: `safeconsumer extend --group GROUP --owner OWNER "
        "--for 1h SCOPE`, with what `safeconsumer status --group GROUP` says of it. "
        "That of a member (`group:OWNER`) only members place again.",
    ),
    Alert(
        name="WorkerNotPolling",
        expr="time() - {p}worker_last_poll_timestamp_seconds > 60",
        for_="1m",
        severity="critical",
        summary="The worker of {{ $labels.instance }} has not polled for "
        "{{ $value | humanizeDuration }}",
        meaning="Its loop stands still, or an error has ended it while its process "
        "lives. Kafka takes its partitions away after `max.poll.interval.ms`. One that "
        "was asked to stop is not meant.",
        action="`Worker.healthy()` says what stands where, as does `/healthy` of "
        "`safeconsumer run --probe-port`. Look for `worker_stopped` in its log; "
        "restart the process.",
    ),
    Alert(
        name="CommitsFailing",
        expr="{p}worker_commits_failing_seconds > 300 and "
        "time() - {p}worker_last_poll_timestamp_seconds < 60",
        for_="5m",
        severity="critical",
        summary="No commit of {{ $labels.instance }} has gone through for "
        "{{ $value | humanizeDuration }}",
        meaning="Something is to be committed, and for ten minutes each commit was "
        "refused or not sent. After a restart everything since comes again; where not "
        "even the beginning is committed, nothing is handled.",
        action="`commit_rejected` in the log has the error. Mind ACLs on the group, "
        "and handlers that are slower than `max.poll.interval.ms`.",
    ),
    Alert(
        name="DeadLetters",
        expr="increase({p}worker_dead_letters_total[10m]) > 0",
        for_="0m",
        severity="warning",
        summary="{{ $labels.instance }} has written dead letters",
        meaning="Records failed for good and went to the topic of dead letters.",
        action="`safeconsumer dead-letters list TOPIC`, with the worker's topic of "
        "dead letters, shows why; mend that, and send them back: `safeconsumer "
        "dead-letters replay TOPIC`.",
    ),
    Alert(
        name="HookFails",
        expr="increase({p}hook_failures_total[1h]) > 0 or "
        "increase({p}worker_hook_failures_total[1h]) > 0",
        for_="0m",
        severity="warning",
        summary="A hook of {{ $labels.instance }} raises",
        meaning="One of the application's own hooks raised; consuming goes on, but "
        "what the hook does is not done.",
        action="The log has its first error. `consumer.hook_failures` and "
        "`worker.hook_failures` say which one it is, and how often.",
    ),
)

# With ``on`` a label that both sides lack matches, one that only one side has does not.
_MUTE = f"unless on (cluster, group, topic) {PREFIX}group_topic_held == 1"

# For kafka-exporter, whose metric has the group in another label.
LAG_QUERY = (
    "sum by (cluster, group, topic) (label_replace(kafka_consumergroup_lag, "
    f'"group", "$1", "consumergroup", "(.+)")) > 10000 {_MUTE}'
)

_LAG = f"""# A lag alert that says nothing of what is held on purpose. Take yours, and end it with
# "{_MUTE}":
# that metric is at the /metrics of safeconsumer console. With several clusters in one
# Prometheus, give the targets of exporter and console the label cluster.
groups:
  - name: lag
    rules:
      - alert: ConsumerLag
        expr: {json.dumps(LAG_QUERY)}
        for: 10m
        labels:
          severity: warning
        annotations:
          summary: "{{{{ $labels.group }}}} is {{{{ $value }}}} records behind on {{{{ $labels.topic }}}}"
"""  # noqa: E501 - as it stands in the file


def rules(runbook_url: str = RUNBOOK) -> str:
    """
    Return the rules as Prometheus reads them.

    Args:
        runbook_url: the runbook's address; each alert links to its paragraph there.
    """
    return "\n".join(_rules(runbook_url)) + "\n"


def lag_rules() -> str:
    """
    Return the example of a lag alert that ignores held partitions.
    """
    return _LAG


def _rules(runbook_url: str) -> Iterator[str]:
    # A JSON text is also a YAML text.
    yield "groups:"
    yield "  - name: safeconsumer"
    yield "    rules:"
    for one in ALERTS:
        yield f"      - alert: {one.name}"
        yield f"        expr: {json.dumps(one.query)}"
        yield f"        for: {one.for_}"
        yield "        labels:"
        yield f"          severity: {one.severity}"
        yield "        annotations:"
        yield f"          summary: {json.dumps(one.summary)}"
        yield f"          description: {json.dumps(one.meaning)}"
        link = json.dumps(f"{runbook_url}#{one.name.lower()}")
        yield f"          runbook_url: {link}"


def runbook() -> str:
    """
    Return what each alert means and what to do, as Markdown.
    """
    return "\n".join(_runbook())


def _runbook() -> Iterator[str]:
    yield "# Runbook\n"
    yield "What each alert of `alerts.yml` means, and what to do.\n"
    yield (
        "What tells of groups is asked of `safeconsumer console`, which Prometheus "
        "reaches with `--metrics-port 9101 --metrics-host 0.0.0.0`, without a token, "
        "or on the same machine at the console's own port, with `authorization: "
        "{credentials_file: ...}` and the token of `--token-file`: that one may place "
        "holds, too, unless the console is `--read-only`.\n"
    )
    for one in ALERTS:
        yield f"## {one.name}\n"
        yield f"*{one.severity}*, after {one.for_}: `{one.query}`\n"
        yield f"{one.meaning}\n"
        yield f"{one.action}\n"
    yield _ABOUT


_ABOUT = f"""## Lag of what is held

What is held on purpose has lag, and nobody needs to be woken by it. Add to your lag
alert, as in `lag-alert.yml`: `{_MUTE}`.

Where the console is away, or has heard nothing for 10 s, nobody knows what is held, and
the lag alert fires for it too.

## Several clusters, several consoles

Rules about groups leave out the labels `instance` and `pod`: replicas of a console are
one. All other labels keep clusters apart: give the console of each cluster a job of its
own, or the label `cluster`. A lag alert goes by that label alone, so the exporter's
targets need the same; if neither has it, two groups of one name in two clusters are
taken for one.
"""
