"""
Generates the reference page of all metrics from the table.

``python -m safeconsumer.metrics.reference --write FILE`` writes the page to a file;
without ``--write`` it is printed.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from safeconsumer.metrics.table import (
    CONSUMER_LABELS,
    MOST_CONSOLE_SERIES,
    Label,
    Metric,
    Source,
    name_of,
    of,
    unit_of,
)

_SECTIONS: tuple[tuple[Source, str, str], ...] = (
    (
        "consumer",
        "A consumer",
        "These are reported for every `SafeConsumer` that a collector was given.",
    ),
    (
        "control",
        "A consumer with `control=`",
        "These come in addition to those of a consumer, only if it has `control=`.",
    ),
    (
        "worker",
        "A worker",
        (
            "These are reported for every `Worker`, in addition to those of its "
            "consumer; `safeconsumer run` reports them too."
        ),
    ),
    (
        "spark",
        "A Spark session",
        (
            "These come from `safeconsumer.spark.listener()`, for each running query; "
            "the label is its name or id."
        ),
    ),
    (
        "console",
        "The console",
        (
            "`safeconsumer console` exports these at `/metrics`, for groups that are "
            "held or whose members report."
        ),
    ),
)
_HEAD = f"""# Metrics

This page is generated from `safeconsumer/metrics/table.py` by `python -m safeconsumer.metrics.reference`.

Each value of a consumer or a worker also has the labels {" and ".join(f"`{name}`" for name in CONSUMER_LABELS)}, except with `is_labelled=False` and at `safeconsumer run --probes`.
*Series* is the largest number of series that a metric can have: a member has fewer than 100 in all, whatever is assigned to it; a console shows at most {MOST_CONSOLE_SERIES:,}, and counts those that it leaves out.
*kafka-python* is the name of the sum in `consumer.metrics()`, group `safeconsumer-metrics`.
*OpenTelemetry* is the instrument that `safeconsumer.metrics.otel.Instruments(worker)` observes (extra `otel`), with its unit; when OpenTelemetry exports it to Prometheus, it has the name in this table again. The histogram is an exception: OpenTelemetry cannot observe it, so it is two counters there.
Spans, which `Worker(trace=True)` creates for each attempt at a record, are described in [worker](worker.md#traces).
"""  # noqa: E501 - one sentence, one line


def page() -> str:
    """Return the page, as Markdown."""
    return "\n".join([_HEAD, *_sections()])


def _sections() -> Iterator[str]:
    for source, title, about in _SECTIONS:
        yield f"## {title}\n\n{about}\n"
        yield (
            "| name | type | unit | labels | series | kafka-python | OpenTelemetry "
            "| meaning |"
        )
        yield "|---|---|---|---|---|---|---|---|"
        for metric in of(source):
            yield _row(metric)
        yield ""


def _row(metric: Metric) -> str:
    labels = "; ".join(map(_label, metric.labels))
    cells = (
        f"`{metric.full_name}`",
        metric.kind,
        metric.unit or "",
        labels,
        "" if metric.most is None else str(metric.most),
        f"`{metric.kafka}`" if metric.kafka else "",
        _instruments(metric),
        metric.meaning,
    )
    return f"| {' | '.join(cells)} |"


def _instruments(metric: Metric) -> str:
    if metric.source == "console":
        return ""
    name, unit = name_of(metric), unit_of(metric)
    if metric.kind == "histogram":
        return f"`{name}.count`, `{name}.sum` in `{unit}`"
    return f"`{name}` in `{unit}`" if unit else f"`{name}`"


def _label(label: Label) -> str:
    values = ", ".join(f"`{one}`" for one in label.values)
    return f"`{label.name}`: {values}" if values else f"`{label.name}`"


def main(arguments: list[str] | None = None) -> None:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(description="The reference page of all metrics.")
    parser.add_argument("--write", metavar="FILE", type=Path)
    file: Path | None = parser.parse_args(arguments).write
    if file is None:
        sys.stdout.write(page())
    else:
        file.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
