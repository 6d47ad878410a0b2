"""Defines the options with which a command judges journals."""

import functools
import math
from collections.abc import Callable
from typing import Any

import click

from safeconsumer.audit.checker import Settings


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command what the judge assumes; it is called with ``settings``."""

    @click.option(
        "--drained",
        is_flag=True,
        help="Every written record should have been delivered.",
    )
    @click.option(
        "--clock-skew",
        type=float,
        default=0.0,
        callback=_allowance,
        metavar="SECONDS",
        help="By how much the clocks of any two hosts may differ, brokers too.",
    )
    @click.option(
        "--patience",
        type=float,
        default=5.0,
        show_default=True,
        callback=_allowance,
        metavar="SECONDS",
        help="How long records may take to come after a resume, and an operator's hold "
        "to reach members that own the partition already.",
    )
    @functools.wraps(command)
    def with_settings(
        *args: Any,  # noqa: ANN401 - the command's own
        drained: bool,
        clock_skew: float,
        patience: float,
        **kwargs: Any,  # noqa: ANN401 - the command's own
    ) -> Any:  # noqa: ANN401 - the command's own
        settings = Settings(
            patience=patience, clock_skew=clock_skew, is_drained=drained
        )
        return command(*args, settings=settings, **kwargs)

    return with_settings


def _allowance(
    _context: click.Context, _parameter: click.Parameter, value: float
) -> float:
    if not 0 <= value < math.inf:
        message = f"{value} is not a number of seconds, 0 or more"
        raise click.BadParameter(message)
    return value
