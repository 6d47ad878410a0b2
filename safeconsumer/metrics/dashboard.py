"""Builds the Grafana dashboard: classic JSON, with the data source as a variable."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from attrs import frozen

from safeconsumer.metrics.table import PREFIX

_WIDTH, _HEIGHT, _COLUMNS = 8, 8, 3
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
RATE = "$__rate_interval"


@frozen(kw_only=True)
class Panel:
    """
    A panel of the dashboard.

    Attributes:
        title: the panel's title.
        about: what it shows.
        queries: PromQL, with the legend; ``{p}`` stands for the prefix of all metrics.
        unit: Grafana's name of the unit.
        is_alarming: whether every value above 0 is shown in red.
    """

    title: str
    about: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    is_alarming: bool = False


@frozen
class Row:
    """Panels about one subject, under one heading."""

    title: str
    panels: tuple[Panel, ...]


_I = '{instance=~"$instance"}'


def _each(metric: str, how: str, *more: str) -> str:
    # Replicas of one console have the same values, which must be counted once.
    labels = ", ".join(['job=~"$console"', 'group=~"$group"', *more])
    return f"{how} (max without (instance, pod) ({{p}}{metric}{{{labels}}}))"


ROWS = (
    Row(
        "Groups, as the console knows them",
        (
            Panel(
                title="Held, but still delivered",
                about="Partitions that a hold covers and that still flow; this must "
                "be 0.",
                queries=[
                    (
                        _each(
                            "group_partitions", "sum by (group)", 'state="held_flowing"'
                        ),
                        "{{group}}",
                    )
                ],
                is_alarming=True,
            ),
            Panel(
                title="Partitions",
                about="How many flow, are quiet, are held but flow, or are in an "
                "unknown state.",
                queries=[
                    (_each("group_partitions", "sum by (state)"), "{{state}}"),
                ],
            ),
            Panel(
                title="Members",
                about="By what they report; silent members may not obey.",
                queries=[(_each("group_members", "sum by (state)"), "{{state}}")],
            ),
            Panel(
                title="Holds",
                about="By the control topic that they are on, and how many have no "
                "end.",
                queries=[
                    (_each("group_holds", "sum by (source)"), "{{source}}"),
                    (_each("group_unlimited_holds", "sum"), "without an end"),
                ],
            ),
            Panel(
                title="Next hold ends in",
                about="The earliest expiry of each group.",
                queries=[
                    (
                        _each("group_next_expiry_timestamp_seconds", "min by (group)")
                        + " - time()",
                        "{{group}}",
                    )
                ],
                unit="s",
            ),
            Panel(
                title="Retention deletes held data in",
                about="Counted from when holds were placed; below 0 data may be "
                "deleted.",
                queries=[
                    (
                        _each("group_retention_margin_seconds", "min by (group)"),
                        "{{group}}",
                    )
                ],
                unit="s",
            ),
            Panel(
                title="Lag of held partitions",
                about="Records that wait for a resume.",
                queries=[
                    (
                        _each("group_held_lag_records", "sum by (group, topic)"),
                        "{{group}} {{topic}}",
                    ),
                ],
            ),
            Panel(
                title="Topics held",
                about="Topics with held partitions, for which lag alerts are silenced.",
                queries=[
                    (_each("group_topic_held", "sum by (group)"), "{{group}}"),
                ],
            ),
            Panel(
                title="Age of the console's data",
                about="Above 10 s the console exports no metrics of groups.",
                queries=[
                    (
                        '{p}console_snapshot_age_seconds{job=~"$console"}',
                        "{{job}} {{instance}}",
                    ),
                ],
                unit="s",
            ),
        ),
    ),
    Row(
        "Members",
        (
            Panel(
                title="Partitions",
                about="How many are assigned, and how many of these are quiet.",
                queries=[
                    (f"sum({{p}}consumer_assigned_partitions{_I})", "assigned"),
                    (f"sum({{p}}consumer_quiet_partitions{_I})", "quiet"),
                ],
            ),
            Panel(
                title="Holds in force",
                about="By who placed them.",
                queries=[(f"sum by (kind) ({{p}}holds{_I})", "{{kind}}")],
            ),
            Panel(
                title="Holds placed and ended",
                about="Those of workers are not counted.",
                queries=[
                    (
                        f"sum by (change) (rate({{p}}hold_changes_total{_I}[{RATE}]))",
                        "{{change}}",
                    )
                ],
                unit="ops",
            ),
            Panel(
                title="Rebalances",
                about="Joins that completed, and partitions that moved in them.",
                queries=[
                    (f"sum(increase({{p}}rebalances_total{_I}[{RATE}]))", "joins"),
                    (
                        (
                            "sum by (how) (increase({p}partition_moves_total"
                            f"{_I}[{RATE}]))"
                        ),
                        "{{how}}",
                    ),
                ],
            ),
            Panel(
                title="Fetched data parked and thrown away",
                about="Parked data waits for a resume; purged data is fetched again.",
                queries=[
                    (f"sum({{p}}parked_bytes{_I})", "parked"),
                    (f"sum(rate({{p}}purged_bytes_total{_I}[{RATE}]))", "purged / s"),
                    (
                        f"sum(rate({{p}}parked_dropped_bytes_total{_I}[{RATE}]))",
                        "dropped / s",
                    ),
                ],
                unit="bytes",
            ),
            Panel(
                title="Alarms",
                about="Warnings and errors; the log says for each what to do.",
                queries=[
                    (
                        f"sum by (event) (increase({{p}}{name}{_I}[{RATE}]))",
                        legend,
                    )
                    for name, legend in (
                        ("alarms_total", "{{event}}"),
                        ("worker_alarms_total", "{{event}}, of a worker"),
                        ("hook_failures_total", "hooks that raised"),
                        ("worker_hook_failures_total", "on_event raised"),
                        ("control_resets_total", "control topics recreated"),
                        ("control_skipped_records_total", "unreadable control records"),
                        ("worker_leaked_total", "records in spite of a hold"),
                        ("deleted_unread_offsets_total", "offsets deleted unread"),
                    )
                ],
                is_alarming=True,
            ),
            Panel(
                title="Control topics read",
                about="At 0 the member keeps the holds that it knew.",
                queries=[(f"{{p}}control_ready{_I}", "{{instance}} {{client_id}}")],
            ),
            Panel(
                title="Partitions that wait for the control topics",
                about="New ones wait for a moment; longer only if topics cannot be "
                "read.",
                queries=[(f"sum({{p}}control_gated_partitions{_I})", "gated")],
            ),
            Panel(
                title="Seconds since the last poll",
                about="Above max.poll.interval.ms the group removes the member.",
                queries=[
                    (
                        f"time() - {{p}}consumer_last_poll_timestamp_seconds{_I}",
                        "{{instance}} {{client_id}}",
                    )
                ],
                unit="s",
            ),
        ),
    ),
    Row(
        "Workers",
        (
            Panel(
                title="Records done",
                about="Per second, with retried and dropped records.",
                queries=[
                    (f"sum(rate({{p}}worker_done_total{_I}[{RATE}]))", "done"),
                    (f"sum(rate({{p}}worker_retries_total{_I}[{RATE}]))", "retries"),
                    (f"sum(rate({{p}}worker_dropped_total{_I}[{RATE}]))", "dropped"),
                ],
                unit="ops",
            ),
            Panel(
                title="Failed permanently",
                about="Dead letters, and records that were skipped.",
                queries=[
                    (
                        f"sum(increase({{p}}worker_dead_letters_total{_I}[{RATE}]))",
                        "dead letters",
                    ),
                    (
                        f"sum(increase({{p}}worker_skipped_total{_I}[{RATE}]))",
                        "skipped",
                    ),
                ],
                is_alarming=True,
            ),
            Panel(
                title="Handlers",
                about="Seconds per record: the median and the 99th percentile.",
                queries=[
                    (
                        (
                            f"histogram_quantile({share}, sum by (le) "
                            f"(rate({{p}}worker_handler_seconds_bucket{_I}[{RATE}])))"
                        ),
                        legend,
                    )
                    for share, legend in ((0.5, "p50"), (0.99, "p99"))
                ],
                unit="s",
            ),
            Panel(
                title="Lag",
                about="Records that workers have not completed, and offsets not "
                "committed.",
                queries=[
                    (f"sum({{p}}worker_lag_records{_I})", "records behind"),
                    (f"sum({{p}}worker_commit_lag_offsets{_I})", "not committed"),
                ],
            ),
            Panel(
                title="Held in memory",
                about="Records that wait for a handler, and records in handlers.",
                queries=[
                    (f"sum({{p}}worker_queued_records{_I})", "queued"),
                    (f"sum({{p}}worker_running_records{_I})", "running"),
                ],
            ),
            Panel(
                title="Paused by the worker itself",
                about="Share of the time, by reason: the mean of all workers.",
                queries=[
                    (
                        (
                            "avg by (owner) (rate({p}worker_pause_seconds_total"
                            f"{_I}[{RATE}]))"
                        ),
                        "{{owner}}",
                    )
                ],
                unit="percentunit",
            ),
            Panel(
                title="Commits",
                about="Per second; refused commits are retried.",
                queries=[
                    (f"sum(rate({{p}}worker_commits_total{_I}[{RATE}]))", "done"),
                    (
                        f"sum(rate({{p}}worker_commits_failed_total{_I}[{RATE}]))",
                        "refused",
                    ),
                ],
                unit="ops",
            ),
            Panel(
                title="Outages",
                about="Topics that a breaker has stopped.",
                queries=[
                    (f"sum({{p}}worker_breaker_open_topics{_I})", "stopped topics"),
                ],
                is_alarming=True,
            ),
            Panel(
                title="Seconds since its loop ran",
                about="Above a minute the worker hangs, or has ended.",
                queries=[
                    (
                        f"time() - {{p}}worker_last_poll_timestamp_seconds{_I}",
                        "{{instance}} {{client_id}}",
                    )
                ],
                unit="s",
            ),
        ),
    ),
)


def queries() -> Iterator[tuple[str, str]]:
    """Yield the title of each panel with each of its queries, for Prometheus."""
    for row in ROWS:
        for panel in row.panels:
            for query, _ in panel.queries:
                yield panel.title, query.replace("{p}", PREFIX)


def dashboard() -> str:
    """Return the dashboard, for import into Grafana."""
    document = {
        "uid": "safeconsumer",
        "title": "safeconsumer",
        "tags": ["kafka", "safeconsumer"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": list(_variables())},
        "panels": list(_panels()),
    }
    return json.dumps(document, indent=2) + "\n"


def _variables() -> Iterator[dict[str, Any]]:
    yield {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
    }
    for name, metric, label in (
        ("console", "console_snapshot_age_seconds", "job"),
        ("group", "group_partitions", "group"),
        ("instance", "consumer_assigned_partitions", "instance"),
    ):
        query = f"label_values({PREFIX}{metric}, {label})"
        yield {
            "name": name,
            "label": name.capitalize(),
            "type": "query",
            "datasource": _SOURCE,
            "query": {"query": query, "refId": name},
            "definition": query,
            "refresh": 2,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
        }


def _panels() -> Iterator[dict[str, Any]]:
    number, top = 1, 0
    for row in ROWS:
        place = {"h": 1, "w": _WIDTH * _COLUMNS, "x": 0, "y": top}
        shown = {"title": row.title, "collapsed": False, "panels": []}
        yield {"id": number, "type": "row", **shown, "gridPos": place}
        number, top = number + 1, top + 1
        for at, panel in enumerate(row.panels):
            line, column = divmod(at, _COLUMNS)
            place = {
                "h": _HEIGHT,
                "w": _WIDTH,
                "x": column * _WIDTH,
                "y": top + line * _HEIGHT,
            }
            yield {"id": number, "gridPos": place, **_panel(panel)}
            number += 1
        top += -(-len(row.panels) // _COLUMNS) * _HEIGHT


def _panel(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.is_alarming:
        steps.append({"color": "red", "value": 0.000001})
    shown = {"thresholdsStyle": {"mode": "line"}} if panel.is_alarming else {}
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0 if panel.is_alarming else None,
                "custom": shown,
                "thresholds": {"mode": "absolute", "steps": steps},
            },
            "overrides": [],
        },
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": _SOURCE,
                "expr": query.replace("{p}", PREFIX),
                "legendFormat": legend,
            }
            for at, (query, legend) in enumerate(panel.queries)
        ],
    }
