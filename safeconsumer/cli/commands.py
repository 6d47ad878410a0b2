"""
Every command, under one group.
"""

import click

from safeconsumer.cli.demo import demo


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="safeconsumer", prog_name="safeconsumer")
def safeconsumer() -> None:
    """
    Pause Kafka consumers so that they stay paused.
    """


safeconsumer.add_command(demo)
