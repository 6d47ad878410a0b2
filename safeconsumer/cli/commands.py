"""
Every command, under one group.
"""

import click

from safeconsumer.cli.archive import archive
from safeconsumer.cli.audit import audit
from safeconsumer.cli.dead_letters import dead_letters
from safeconsumer.cli.demo import demo
from safeconsumer.cli.doctor import doctor
from safeconsumer.cli.holding import pause, resume
from safeconsumer.cli.run import run
from safeconsumer.cli.timeline import timeline
from safeconsumer.cli.topics_init import control
from safeconsumer.cli.watching import history, status, wait


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="safeconsumer", prog_name="safeconsumer")
def safeconsumer() -> None:
    """
    Pause Kafka consumers so that they stay paused.
    """


for _command in (
    archive,
    audit,
    control,
    dead_letters,
    demo,
    doctor,
    history,
    pause,
    resume,
    run,
    status,
    timeline,
    wait,
):
    safeconsumer.add_command(_command)
