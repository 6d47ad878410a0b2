"""
Every command, under one group.
"""

import click

from safeconsumer.cli.demo import demo
from safeconsumer.cli.run import run


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="safeconsumer", prog_name="safeconsumer")
def safeconsumer() -> None:
    """
    Pause Kafka consumers so that they stay paused.
    """


safeconsumer.add_command(demo)
safeconsumer.add_command(run)
