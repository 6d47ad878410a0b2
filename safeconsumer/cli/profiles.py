"""
Profiles: which cluster, which control topics and which owner, out of a file.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

FILE = "SAFECONSUMER_PROFILES"
_DEFAULT = "default"

# What may stand in a profile, and the parameter of commands that it is.
_KEYS: Mapping[str, str] = {
    "bootstrap": "bootstrap",
    "config": "config_file",
    "group-topic": "group_topic",
    "journal": "journal",
    "operator-topic": "operator_topic",
    "owner": "owner",
    "status-topic": "status_topic",
    "topic-prefix": "topic_prefix",
}
# Where a command's context keeps which parameters a profile settles that was named on
# the command line.
_SETTLED = "safeconsumer.profile.settled"
# Both say where the cluster is: a login of one is not for the address of another.
_WHERE = frozenset({"bootstrap", "config_file"})


class Profiled(click.Option):
    """
    An option that a profile may give.

    The environment does not count against a profile that was named on the command
    line: whoever types ``--profile staging`` means staging, whatever a shell exports.
    """

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """
        Return what the environment says, unless such a profile says it.
        """
        if self.name in ctx.meta.get(_SETTLED, ()):
            return None
        return super().resolve_envvar_value(ctx)


def use(context: click.Context, parameter: click.Parameter, name: str | None) -> None:
    """
    Make a profile's values the defaults of a command's options.

    Without a name that is the profile ``default``, if there is one. Named on the
    command line, its values count more than the environment.

    Raises:
        click.BadParameter: there is no such profile, or the file is no good.
    """
    path = Path(os.environ.get(FILE) or Path(click.get_app_dir("safeconsumer")))
    path = path if FILE in os.environ else path / "profiles.toml"
    profiles = _read(path, is_wanted=name is not None)
    if name is not None and name not in profiles:
        known = ", ".join(sorted(profiles)) or "none"
        message = f"no profile {name!r} in {path}; there is: {known}"
        raise click.BadParameter(message)
    values = _values(profiles.get(name or _DEFAULT, {}), path)
    context.default_map = {**values, **(context.default_map or {})}
    source = context.get_parameter_source(str(parameter.name))
    if source is ParameterSource.COMMANDLINE:
        context.meta[_SETTLED] = {*values, *(_WHERE if _WHERE & {*values} else ())}


def _read(path: Path, *, is_wanted: bool) -> Mapping[str, Any]:
    if not is_wanted and not path.exists():
        return {}
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        message = f"{path} cannot be read: {error}"
        raise click.BadParameter(message) from error


def _values(profile: object, path: Path) -> dict[str, str]:
    if not isinstance(profile, Mapping):
        message = f"{path}: a profile is a table, such as [{_DEFAULT}]"
        raise click.BadParameter(message)
    values = {}
    for key, value in profile.items():
        if key not in _KEYS or not isinstance(value, str):
            message = (
                f"{path}: {key!r} is no setting of a profile; there is: "
                f"{', '.join(_KEYS)}, each a text"
            )
            raise click.BadParameter(message)
        is_path = key in {"config", "journal"}
        values[_KEYS[key]] = str(path.parent / value) if is_path else value
    return values
