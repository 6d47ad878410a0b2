"""Tests the dashboard, the alert rules and the runbook with promtool."""

import json
import re
import resource

import click
import pytest
from attrs import frozen
from click.testing import CliRunner

from safeconsumer.cli.commands import safeconsumer
from safeconsumer.cli.errors import Status
from safeconsumer.metrics import METRICS
from tests.harness.metrics.monitoring import ALERTS, FILES, filled, queries
from tests.harness.metrics.scraping import needs_promtool, promtool

P = "safeconsumer_"
CLUSTER = "--bootstrap", "127.0.0.1:1"
NAMES = re.compile(r"safeconsumer_[a-z_]+")


@frozen(kw_only=True)
class Scenario:
    """
    Series for which an alert rule must fire, and series for which it must not fire.

    Attributes:
        fires: the series for which the rule fires; each has a value per minute, in
            promtool's notation.
        born: the series for a counter whose first scraped value is above 0.
        silent: the series from systems that are healthy or have another fault.
        at: the time at which the rule is evaluated.
        labels: the alert's labels except the severity.
        summary: the alert's summary.
    """

    fires: dict[str, str]
    silent: tuple[dict[str, str], ...]
    at: str
    labels: dict[str, str]
    summary: str
    born: dict[str, str] | None = None


GROUP = {"group": "billing", "job": "c"}
MEMBER = {"instance": "i", "job": "j"}


def of_member(name, more=""):
    return f'{P}{name}{{instance="i",job="j"{more}}}'


def of_group(name, more="", *, at='job="c",instance="c-1"'):
    return f'{P}{name}{{group="billing"{more},{at}}}'


def of_console(name, at="c-1"):
    return f'{P}{name}{{job="c",instance="{at}"}}'


REPLICAS = 'job="c",instance="c-1"', 'job="c",instance="c-2",pod="two"'
MEMBERS = "group_members"
AGE = of_console("console_snapshot_age_seconds")
LEAKED = of_member("worker_leaked_total")
DELETED = of_member("deleted_unread_offsets_total")
RESETS = of_member("control_resets_total")
STILL_FLOWING = of_group("group_partitions", ',state="held_flowing"')
QUIET = of_group("group_quiet")
SILENT = of_group("group_members", ',state="silent"')
OBEYS = of_group("group_members", ',state="obeys"')
HELD = of_group("group_holds")
ENDLESS = of_group("group_oldest_unlimited_hold_timestamp_seconds")
MARGIN = of_group("group_retention_margin_seconds")
EXPIRING = of_group("group_expiring_holds")
READY = of_member("control_ready")
UNREAD = of_member("gates_opened_unread_total")
POLLED = of_member("worker_last_poll_timestamp_seconds")
FAILING = of_member("worker_commits_failing_seconds")
LETTERS = of_member("worker_dead_letters_total")
HOOKS = of_member("hook_failures_total")
WORKER_HOOKS = of_member("worker_hook_failures_total")


def rises(summary, *counters):
    """Return a scenario for a rule that fires only if a counter rises."""
    *others, last = counters
    still = dict.fromkeys(others, "2x200")
    return Scenario(
        fires={**still, last: "0x190 1x10"},
        born={**still, last: "_x190 4x10"},
        silent=(
            {**still, last: "0x200"},
            {**still, last: "4x200"},
            # Monitoring was down for a while, but the counter has not changed.
            {**still, last: "4x150 _x40 4x10"},
            # The process that had the counter has exited.
            {**still, last: "0x100 4x10 stale"},
        ),
        at="193m",
        labels=MEMBER,
        summary=summary,
    )


SCENARIOS = {
    "HoldNotObeyed": Scenario(
        fires={STILL_FLOWING: "0 3x10"},
        silent=({STILL_FLOWING: "0x10"}, {STILL_FLOWING: "0 3 0x8"}),
        at="5m",
        labels=GROUP,
        summary="Held partitions of billing that still deliver records: 3",
    ),
    "MembersSilentWhileHeld": Scenario(
        fires={SILENT: "1x10", OBEYS: "2x10", HELD: "1x10"},
        silent=(
            {SILENT: "1x10", OBEYS: "2x10", HELD: "0x10"},
            {SILENT: "0x10", OBEYS: "2x10", HELD: "1x10"},
        ),
        at="5m",
        labels=GROUP,
        summary="Members of billing that do not report whether they obey its holds: 1",
    ),
    "HoldUnconfirmed": Scenario(
        fires={QUIET: "1 0x15", SILENT: "0x15", STILL_FLOWING: "0x15"},
        silent=(
            {QUIET: "0x4 1x15", SILENT: "0x15", STILL_FLOWING: "0x15"},
            {QUIET: "0x15", SILENT: "2x15", STILL_FLOWING: "0x15"},
            {QUIET: "0x15", SILENT: "0x15", STILL_FLOWING: "2x15"},
            {},
        ),
        at="10m",
        labels=GROUP,
        summary="It is not confirmed that the held partitions of billing are quiet",
    ),
    "ControlUnavailable": Scenario(
        fires={READY: "1 0x10"},
        silent=({READY: "1x10"}, {READY: "1 0 1x8"}, {}),
        at="5m",
        labels=MEMBER,
        summary="i cannot read the control topics",
    ),
    "GatesOpenedUnread": rises(
        "i delivers records without having read the holds", UNREAD
    ),
    "HeldRecordsHandedOver": rises(
        "The worker of i got records in spite of a hold", LEAKED
    ),
    "RecordsDeletedUnread": rises("Records were deleted before i read them", DELETED),
    "ControlTopicReset": rises(
        "i found that a control topic was recreated or truncated", RESETS
    ),
    "HeldDataAtRisk": Scenario(
        fires={MARGIN: "7200x10"},
        silent=({MARGIN: "86400x10"}, {}),
        at="8m",
        labels=GROUP,
        summary="In 2h 0m 0s retention may begin to delete records that billing has "
        "not read",
    ),
    "UnlimitedHoldOver24h": Scenario(
        # The series starts in the 20th hour, and has interruptions.
        fires={ENDLESS: "_x1200 0x100 stale _x60 0x200"},
        # Three cases: There is no hold. A hold is lifted in its last hour. The oldest
        # hold is lifted, so a newer hold becomes the oldest.
        silent=({}, {ENDLESS: "0x1380 stale"}, {ENDLESS: "0x720 43200x1000"}),
        at="24h30m",
        labels=GROUP,
        summary="A hold of billing without an end has been in force for 1d 0h 30m 0s",
    ),
    "ConsoleKnowsTooLittle": Scenario(
        fires={AGE: "0x3 60+60x10"},
        silent=(
            {AGE: "0x10"},
            {AGE: "90x2 0x8"},
            # One replica has a current snapshot.
            {AGE: "90x10", of_console("console_snapshot_age_seconds", "c-2"): "0x10"},
        ),
        at="8m",
        labels={"job": "c"},
        summary="The console of c lacks metrics of groups",
    ),
    "HoldExpiresSoon": Scenario(
        fires={EXPIRING: "0x35 2x10"},
        silent=({EXPIRING: "0x50"}, {EXPIRING: "0x20 1x15 0x15"}, {}),
        at="40m",
        labels=GROUP,
        summary="Holds of billing that end within 15 minutes: 2",
    ),
    "WorkerNotPolling": Scenario(
        fires={POLLED: "0x10"},
        silent=({POLLED: "0+60x10"}, {}),
        at="5m",
        labels=MEMBER,
        summary="The worker of i has not polled for 5m 0s",
    ),
    "CommitsFailing": Scenario(
        fires={FAILING: "0x4 60+60x20", POLLED: "0+60x30"},
        silent=(
            {FAILING: "0x30", POLLED: "0+60x30"},
            # A commit was refused because its partition had moved to another member,
            # and no record has arrived since then.
            {FAILING: "0x4 60 0x20", POLLED: "0+60x30"},
            # A stopped or idle worker does not retry its last commit.
            {FAILING: "0x4 60+60x20"},
            {FAILING: "0x4 60+60x20", POLLED: "0+60x4 240x20"},
        ),
        at="16m",
        labels=MEMBER,
        summary="No commit of i has succeeded for 12m 0s",
    ),
    "DeadLetters": rises("i has written dead letters", LETTERS),
    "HookFails": rises("A hook of i raises", HOOKS, WORKER_HOOKS),
}


@pytest.fixture
def folder(tmp_path):
    """Let the command ``monitoring`` write its files; return their folder."""
    done = CliRunner().invoke(safeconsumer, ["monitoring", str(tmp_path)])
    assert done.exit_code == 0, done.output
    return tmp_path


def series(values):
    return [{"series": one, "values": value} for one, value in values.items()]


def given(values, alert, at, *expected):
    """Return a promtool test: at this time exactly the expected alerts fire."""
    evaluated = {"eval_time": at, "alertname": alert, "exp_alerts": list(expected)}
    return {"input_series": series(values), "alert_rule_test": [evaluated]}


def fired(alert, **annotations):
    """Return an expected alert in promtool's notation."""
    scenario = SCENARIOS[alert.name]
    return {
        "exp_labels": {"severity": alert.severity, **scenario.labels},
        "exp_annotations": {
            "summary": scenario.summary,
            "description": alert.description,
            "runbook_url": f"runbook.md#{alert.name.lower()}",
            **annotations,
        },
    }


def in_scenario(alert):
    """Yield an alert's tests; if a counter starts above 0, the alert fires for a while."""
    scenario = SCENARIOS[alert.name]
    yield given(scenario.fires, alert.name, scenario.at, fired(alert))
    for one in scenario.silent:
        yield given(one, alert.name, scenario.at)
    if scenario.born is not None:
        late = {name: f"{values} 4x100" for name, values in scenario.born.items()}
        yield given(scenario.born, alert.name, scenario.at, fired(alert))
        yield given(late, alert.name, "290m")


def of_replicas(alert):
    """Yield a test in which two replicas of the console have the same metrics."""
    scenario = SCENARIOS[alert.name]
    values = {
        name.replace('"c-1"', instance): value
        for name, value in scenario.fires.items()
        for instance in ('"c-1"', '"c-2",pod="two"')
    }
    yield given(values, alert.name, scenario.at, fired(alert))


def retention_has_passed():
    """Yield tests in which retention may already have deleted records."""
    (alert,) = (one for one in ALERTS if one.name == "HeldDataAtRisk")
    gone = "Retention may have deleted records that billing has not read"
    for left in (0, -7200):
        values = {MARGIN: f"{left}x10"}
        yield given(values, alert.name, "8m", fired(alert, summary=gone))


def silent_elsewhere():
    """Yield tests with a held group, and a silent group of the same name elsewhere."""
    for other in ('job="d",instance="d-1"', 'job="c",instance="c-2"', 'cluster="d"'):
        values = {
            HELD: "1x10",
            SILENT: "0x10",
            of_group("group_holds", at=other): "0x10",
            of_group("group_members", ',state="silent"', at=other): "3x10",
        }
        yield given(values, "MembersSilentWhileHeld", "5m")


LAG = 'kafka_consumergroup_lag{consumergroup="%s",topic="%s",partition="0"%s}'
TOPIC_HELD = of_group("group_topic_held", ',topic="orders"')


def lagging(group, topic, **more):
    return {
        "exp_labels": {"severity": "warning", "group": group, "topic": topic, **more},
        "exp_annotations": {"summary": f"{group} is 20000 records behind on {topic}"},
    }


def lags_beside_a_hold():
    """Yield a test in which a hold mutes only the lag alert for its own group and topic."""
    values = {
        LAG % ("billing", "orders", ""): "20000x20",
        LAG % ("billing", "audit", ""): "20000x20",
        LAG % ("shipping", "orders", ""): "20000x20",
        TOPIC_HELD: "1x20",
    }
    others = lagging("billing", "audit"), lagging("shipping", "orders")
    yield given(values, "ConsumerLag", "15m", *others)


def lags_in_a_cluster():
    """Yield tests in which only a hold in the same cluster mutes a lag alert."""
    cluster = ',cluster="production"'
    behind = {LAG % ("billing", "orders", cluster): "20000x20"}
    alert = lagging("billing", "orders", cluster="production")
    for place in ('cluster="production"', 'cluster="staging"', None):
        held = of_group("group_topic_held", ',topic="orders"', at=place)
        values = behind | {TOPIC_HELD if place is None else held: "1x20"}
        alerts = () if place == 'cluster="production"' else (alert,)
        yield given(values, "ConsumerLag", "15m", *alerts)


def shown(values, at, figures):
    """Return a promtool test: each panel, named by its title, shows the given value."""
    found = {
        filled(query, "5m"): figures[title]
        for title, query in queries()
        if title in figures
    }
    assert len(found) == len(figures)
    tests = [
        {
            "expr": f"sum ({query})",
            "eval_time": at,
            "exp_samples": [{"labels": "{}", "value": figure}],
        }
        for query, figure in found.items()
    ]
    return {"input_series": series(values), "promql_expr_test": tests}


def panels():
    """Yield tests for panels, with replicas of a console and with paused workers."""
    values = {
        of_group(name, f',state="{state}"', at=at): "4x30"
        for name, state in (("group_partitions", "held_flowing"), (MEMBERS, "silent"))
        for at in (*REPLICAS, 'job="d",instance="d-1"')
    }
    yield shown(values, "12m", {"Held, but still delivered": 8, "Members": 8})
    paused = f'{P}worker_pause_seconds_total{{owner="worker:drain",instance="%s"}}'
    values = {paused % one: "0+60x30" for one in "abcd"}
    yield shown(values, "12m", {"Paused by the worker itself": 1})


OF_GROUPS = [one for one in ALERTS if SCENARIOS[one.name].labels is GROUP]
TESTS = {
    **{one.name: ("alerts.yml", [*in_scenario(one)]) for one in ALERTS},
    **{
        f"{one.name}-replicas": ("alerts.yml", [*of_replicas(one)]) for one in OF_GROUPS
    },
    "retention-has-passed": ("alerts.yml", [*retention_has_passed()]),
    "silent-elsewhere": ("alerts.yml", [*silent_elsewhere()]),
    "lags-beside-a-hold": ("lag-alert.yml", [*lags_beside_a_hold()]),
    "lags-in-a-cluster": ("lag-alert.yml", [*lags_in_a_cluster()]),
    "panels": ("alerts.yml", [*panels()]),
}


@needs_promtool
@pytest.mark.parametrize(("rules", "tests"), TESTS.values(), ids=TESTS)
def test_alerts_fire_and_panels_show_values_as_expected(folder, rules, tests):
    document = {
        "rule_files": [rules],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", **one} for one in tests],
    }
    (folder / "tests.yml").write_text(json.dumps(document))  # JSON is YAML
    assert "SUCCESS" in promtool("test", "rules", str(folder / "tests.yml"))


def test_every_alert_has_a_scenario():
    assert list(SCENARIOS) == [one.name for one in ALERTS]
    counting = [one.name for one in ALERTS if "_total" in one.expr]
    assert [name for name, one in SCENARIOS.items() if one.born] == counting


def test_dashboard_and_alerts_use_exactly_the_metrics_in_the_table():
    named = {name for text in FILES.values() for name in NAMES.findall(text)}
    assert {name.removesuffix("_bucket") for name in named} == {
        one.full_name for one in METRICS
    }


def test_dashboard_can_be_imported_into_grafana():
    """Every panel queries the chosen data source, and no panel overlaps another panel."""
    document = json.loads(FILES["dashboard.json"])
    panels = document["panels"]
    assert len({one["id"] for one in panels}) == len(panels)
    places = set()
    for one in panels:
        if one["type"] == "row":
            assert (one["collapsed"], one["panels"]) == (False, [])
        place = one["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & places
        places |= cells
        for target in one.get("targets", ()):
            assert target["datasource"]["uid"] == "${datasource}"
    names = {one["name"] for one in document["templating"]["list"]}
    asked = set(re.findall(r"\$([a-z]+)", " ".join(q for _, q in queries())))
    assert asked | {"datasource"} == names


def test_every_alert_has_a_paragraph_in_the_runbook():
    """The paragraph's heading matches the anchor in the alert's annotation."""
    book = FILES["runbook.md"]
    for one in ALERTS:
        assert f"## {one.name}\n\n" in book
        assert one.description in book


COMMANDS = [
    found.split()
    for found in re.findall(r"`safeconsumer ([^`]+)`", FILES["runbook.md"])
    if not found.startswith("run ")  # only named, not meant to be typed
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_in_the_runbook_can_be_parsed(words):
    context, command, left = click.Context(safeconsumer), safeconsumer, words
    while isinstance(command, click.Group):
        _, found, left = command.resolve_command(context, left)
        assert found is not None
        command = found
    if left != ["--help"]:
        command.make_context(" ".join(words), [*left, *CLUSTER])


def test_monitoring_command_does_not_overwrite_changed_files(folder):
    arguments = ["monitoring", str(folder)]
    assert CliRunner().invoke(safeconsumer, arguments).exit_code == 0
    (folder / "alerts.yml").write_text("mine")
    (folder / "dashboard.json").unlink()
    done = CliRunner().invoke(safeconsumer, arguments)
    assert done.exit_code == Status.FAILED
    assert "alerts.yml" in done.stderr
    assert "alerts.yml" not in done.stdout
    assert (folder / "alerts.yml").read_text() == "mine"
    assert (folder / "dashboard.json").read_text() == FILES["dashboard.json"]
    (folder / "alerts.yml").unlink()
    assert CliRunner().invoke(safeconsumer, arguments).exit_code == 0
    assert (folder / "alerts.yml").read_text() == FILES["alerts.yml"]


def test_links_of_alerts_lead_to_the_given_runbook(tmp_path):
    """Only the links change: they become absolute, as Alertmanager's messages need them."""
    arguments = ["monitoring", str(tmp_path), "--runbook", "https://wiki.example/r?p=1"]
    assert CliRunner().invoke(safeconsumer, arguments).exit_code == 0
    changed, old = (tmp_path / "alerts.yml").read_text(), FILES["alerts.yml"]
    link = 'runbook_url: "https://wiki.example/r?p=1#'
    assert changed == old.replace('runbook_url: "runbook.md#', link)
    assert changed.count(link) == len(ALERTS)
    for wrong in (
        "wiki.example",
        "https://",
        "https://a.b/#c",
        'https://a"b',
        "ftp://a",
    ):
        refused = CliRunner().invoke(safeconsumer, [*arguments[:-1], wrong])
        assert refused.exit_code == Status.USAGE
        assert "is no address like" in refused.stderr


def test_monitoring_command_writes_each_file_completely_or_not_at_all(folder):
    for one in folder.iterdir():
        one.unlink()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        arguments = ["monitoring", str(folder)]
        done = CliRunner().invoke(safeconsumer, arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert done.exit_code == Status.FAILED
    assert "cannot be written" in done.stderr
    assert [*folder.iterdir()] == []
