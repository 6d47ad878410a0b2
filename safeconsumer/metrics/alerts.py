"""Defines the alert rules: what each one means, and what to do about it."""

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
        """The expression for Prometheus."""
        return self.expr.replace("{p}", PREFIX)


ALERTS = (
    Alert(
        name="HoldNotObeyed",
        expr="max without (instance, pod, state) "
        '({p}group_partitions{state="held_flowing"}) > 0',
        for_="1m",
        severity="critical",
        summary="Held partitions of {{ $labels.group }} that still deliver records: "
        "{{ $value }}",
        meaning="A hold covers the partitions, but their records are still delivered. "
        "Either the owner has read the hold and reports this itself, or the owner is a "
        "plain client, which reports nothing and keeps committing higher offsets. A "
        "plain client that commits nothing to Kafka cannot be judged: "
        "MembersSilentWhileHeld fires for it.",
        action="`safeconsumer status --group GROUP` names the partitions and their "
        "owners. If the owner is a plain client, stop it, or switch it to "
        "safeconsumer. If it uses safeconsumer, a handler that is still running "
        "finishes by itself; otherwise stop the process and report a defect.",
    ),
    Alert(
        name="MembersSilentWhileHeld",
        expr="max without (instance, pod) (sum without (state) "
        '({p}group_members{state=~"silent|unavailable"}) > 0 '
        "and sum without (source) ({p}group_holds) > 0)",
        for_="2m",
        severity="warning",
        summary="Members of {{ $labels.group }} that do not report whether they obey "
        "its holds: {{ $value }}",
        meaning="The group is held, and some members report nothing, or report that "
        "they cannot read the control topics. It is unknown whether they are quiet.",
        action="`safeconsumer doctor --group GROUP` shows the reason: a plain "
        "client, a missing ACL on a control topic, an older version, or a member that "
        "hangs.",
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
        summary="It is not confirmed that the held partitions of {{ $labels.group }} "
        "are quiet",
        meaning="The group has been held for five minutes, and either it is unknown "
        "whether its members obey, or they are not quiet yet.",
        action="`safeconsumer status --group GROUP` and `safeconsumer doctor --group "
        "GROUP` show the reason: the console is not allowed to read the status topic "
        "or to describe the group, a member is behind, or a handler is still working "
        "on a record.",
    ),
    Alert(
        name="ControlUnavailable",
        expr="{p}control_ready == 0",
        for_="2m",
        severity="critical",
        summary="{{ $labels.instance }} cannot read the control topics",
        meaning="The member keeps the holds that it knew, but new holds and resumes do "
        "not reach it. Newly assigned partitions wait; with "
        '`unavailable="run"` they wait only for a limited time. The alert does not '
        "fire for a consumer that was closed.",
        action="Look for `control_unavailable` in its log, which gives the reason. "
        "Check the topics, their ACLs and the cluster with `safeconsumer doctor`.",
    ),
    Alert(
        name="GatesOpenedUnread",
        expr="increase({p}gates_opened_unread_total[15m]) > 0",
        for_="0m",
        severity="warning",
        summary="{{ $labels.instance }} delivers records without having read the holds",
        meaning='With `unavailable="run"` a member starts to deliver after a while '
        "even if it could not read the control topics, so it may be ignoring a hold.",
        action="Do the same as for ControlUnavailable. If held partitions must never "
        'flow, use `unavailable="hold"`, which is the default.',
    ),
    Alert(
        name="HeldRecordsHandedOver",
        expr="increase({p}worker_leaked_total[1h]) > 0",
        for_="0m",
        severity="critical",
        summary="The worker of {{ $labels.instance }} got records in spite of a hold",
        meaning="The consumer gave its worker records of a partition that was held. "
        "This should never happen; if it does, it is a defect in safeconsumer.",
        action="Stop the worker if the held records must not be processed. Report the "
        "defect with its log, and the delivery journal if there is one.",
    ),
    Alert(
        name="RecordsDeletedUnread",
        expr="increase({p}deleted_unread_offsets_total[1h]) > 0",
        for_="0m",
        severity="critical",
        summary="Records were deleted before {{ $labels.instance }} read them",
        meaning="The topic's retention, or somebody, deleted records that the consumer "
        "had not read, often while their partition was held. They are never delivered; "
        "reading goes on at the first record that is left.",
        action="`unread_records_deleted` in the log names the partition, and the first "
        "and the last offset. Restore them from elsewhere if they are needed; raise "
        "`retention.ms` of the topic, or let holds end earlier.",
    ),
    Alert(
        name="ControlTopicReset",
        expr="increase({p}control_resets_total[1h]) > 0",
        for_="0m",
        severity="critical",
        summary="{{ $labels.instance }} found that a control topic was recreated or "
        "truncated",
        meaning="Members keep the holds that they knew until somebody lifts them. "
        "Members that start now do not know these holds, and deliver.",
        action="`control_topic_reset` in the log names the topic. Compare what "
        "`safeconsumer status --group GROUP` still shows with what should be held, and "
        "place missing holds again.",
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
        meaning="Records that were written since the hold was placed are reaching the "
        "retention time of their topic. Deleted records are never delivered. If the "
        "topic has `retention.bytes`, they may be deleted earlier, and no alert fires "
        "for that.",
        action="Resume, raise `retention.ms` of the topic, or copy the records first, "
        "as the guide *Copy topics into files* has it.",
    ),
    Alert(
        name="UnlimitedHoldOver24h",
        expr="time() - min without (instance, pod) "
        "({p}group_oldest_unlimited_hold_timestamp_seconds) > 86400",
        for_="5m",
        severity="warning",
        summary="A hold of {{ $labels.group }} without an end has been in force for "
        "{{ $value | humanizeDuration }}",
        meaning="A hold that never expires was placed more than 24 hours ago. Perhaps "
        "it was forgotten.",
        action="`safeconsumer status --group GROUP` shows who placed it and why. Lift "
        "it with `safeconsumer resume --group GROUP --owner OWNER SCOPE`, and add "
        "`--from-group` if a member placed it (`group:OWNER`). Or give it an end with "
        "`safeconsumer pause --group GROUP --owner OWNER --replace --for 8h --reason "
        "WHY SCOPE`.",
    ),
    Alert(
        name="ConsoleKnowsTooLittle",
        expr="min without (instance, pod) ({p}console_snapshot_age_seconds) > 60 or "
        "min without (instance, pod) ({p}console_omitted_series) > 0",
        for_="2m",
        severity="warning",
        summary="The console of {{ $labels.job }} lacks metrics of some or all groups",
        meaning="Either the console has read nothing new for a minute, and then it "
        "exports no metrics of groups; or there are too many series, and it leaves out "
        "some of held topics and of groups that are not held. Rules about groups "
        "cannot see what is left out, and lag alerts are not silenced for it.",
        action="Its pages show why it reads nothing; `safeconsumer doctor` checks "
        "topics and ACLs. `safeconsumer_console_omitted_series` is the number of "
        "series that are left out; for such a group use `safeconsumer status --group "
        "GROUP`.",
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
        "partitions flow. The alert does not fire for a hold that was placed or "
        "extended in the last 15 minutes, since somebody has just chosen its end.",
        action="If that is too early, run `safeconsumer extend --group GROUP --owner "
        "OWNER --for 1h SCOPE` with the owner and scope that `safeconsumer status "
        "--group GROUP` shows. A hold that a member placed (`group:OWNER`) can only be "
        "placed again by members.",
    ),
    Alert(
        name="WorkerNotPolling",
        expr="time() - {p}worker_last_poll_timestamp_seconds > 60",
        for_="1m",
        severity="critical",
        summary="The worker of {{ $labels.instance }} has not polled for "
        "{{ $value | humanizeDuration }}",
        meaning="Its loop hangs, or an error has ended the loop while the process "
        "still runs. Kafka takes its partitions away after `max.poll.interval.ms`. "
        "The alert does not fire for a worker that was asked to stop.",
        action="`Worker.healthy()` describes what hangs and where, as does `/healthy` "
        "of `safeconsumer run --probes`. Look for `worker_stopped` in its log; "
        "restart the process.",
    ),
    Alert(
        name="CommitsFailing",
        expr="{p}worker_commits_failing_seconds > 300 and "
        "time() - {p}worker_last_poll_timestamp_seconds < 60",
        for_="5m",
        severity="critical",
        summary="No commit of {{ $labels.instance }} has succeeded for "
        "{{ $value | humanizeDuration }}",
        meaning="There is something to commit, and for ten minutes every commit was "
        "refused or not sent. After a restart all records since the last commit are "
        "delivered again; where even the first commit fails, no record is handled.",
        action="`commit_rejected` in the log gives the error. Check the ACLs on the "
        "group, and whether handlers take longer than `max.poll.interval.ms`.",
    ),
    Alert(
        name="DeadLetters",
        expr="increase({p}worker_dead_letters_total[10m]) > 0",
        for_="0m",
        severity="warning",
        summary="{{ $labels.instance }} has written dead letters",
        meaning="Records failed permanently and went to the dead-letter topic.",
        action="`safeconsumer dead-letters list TOPIC`, with the worker's dead-letter "
        "topic, shows why. Fix the cause, and send them back with `safeconsumer "
        "dead-letters replay TOPIC`.",
    ),
    Alert(
        name="HookFails",
        expr="increase({p}hook_failures_total[1h]) > 0 or "
        "increase({p}worker_hook_failures_total[1h]) > 0",
        for_="0m",
        severity="warning",
        summary="A hook of {{ $labels.instance }} raises",
        meaning="One of the application's own hooks raised. Consuming goes on, but the "
        "hook did not do its work.",
        action="The log has its first error. `consumer.hook_failures` and "
        "`worker.hook_failures` show which hook it is, and how often it raised.",
    ),
)

# With ``on``, a label matches if both sides lack it, but not if only one side has it.
_MUTE = f"unless on (cluster, group, topic) {PREFIX}group_topic_held == 1"

# For kafka-exporter, whose metric has the group in a label with another name.
LAG_QUERY = (
    "sum by (cluster, group, topic) (label_replace(kafka_consumergroup_lag, "
    f'"group", "$1", "consumergroup", "(.+)")) > 10000 {_MUTE}'
)

_LAG = f"""# A lag alert that does not fire for topics that are held on purpose. Take your own, and
# end it with "{_MUTE}".
# safeconsumer console exports that metric at /metrics. With several clusters in one
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


def rules() -> str:
    """Return the rules as Prometheus reads them; each links to its part of the runbook."""
    return "\n".join(_rules()) + "\n"


def lag_rules() -> str:
    """Return the example of a lag alert that ignores held partitions."""
    return _LAG


def _rules() -> Iterator[str]:
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
        link = json.dumps(f"{RUNBOOK}#{one.name.lower()}")
        yield f"          runbook_url: {link}"


def runbook() -> str:
    """Return what each alert means and what to do, as Markdown."""
    return "\n".join(_runbook())


def _runbook() -> Iterator[str]:
    yield "# Runbook\n"
    yield "This page says what each alert of `alerts.yml` means, and what to do.\n"
    yield (
        "The metrics of groups come from `safeconsumer console`. Prometheus can reach "
        "it without a token if the console is started with `--metrics 0.0.0.0:9101`. "
        "On the same machine it can also use the console's "
        "own port, with `authorization: {credentials_file: ...}` and the token of "
        "`--token-file`; that token also allows placing holds, unless the console is "
        "`--read-only`.\n"
    )
    for one in ALERTS:
        yield f"## {one.name}\n"
        yield f"*{one.severity}*, after {one.for_}: `{one.query}`\n"
        yield f"{one.meaning}\n"
        yield f"{one.action}\n"
    yield _ABOUT


_ABOUT = f"""## Lag of held topics

A topic that is held on purpose has lag, and nobody needs to be woken by it. Add this to
your lag alert, as in `lag-alert.yml`: `{_MUTE}`.

If the console is down, or has read nothing for 10 s, it is unknown what is held, and
the lag alert fires for held topics too.

## Several clusters, several consoles

Rules about groups ignore the labels `instance` and `pod`, so replicas of a console
count as one. All other labels distinguish clusters: give the console of each cluster a
job of its own, or the label `cluster`. A lag alert uses only the label `cluster`, so
the exporter's targets need it too; if neither has it, groups with the same name in two
clusters are taken for one.
"""
