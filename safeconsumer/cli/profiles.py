"""Reads profiles from a file: which cluster, which control topics and which owner."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

FILE = "SAFECONSUMER_PROFILES"
_DEFAULT = "default"

# The keys of a profile, and the command parameters that they set.
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
# The key in a command's context for the parameters that are settled by a profile given
# on the command line.
_SETTLED = "safeconsumer.profile.settled"
# Both say where the cluster is; a login for one is not for the other's address.
_WHERE = frozenset({"bootstrap", "config_file"})
# A journal's settings of one are not for the cluster of the other, either.
_OF_A_CLUSTER = _WHERE | {"journal"}


class Profiled(click.Option):
    """
    An option that a profile may set.

    If a profile is given on the command line, it comes before the environment: with
    ``--profile staging`` staging is meant, whatever a shell exports.
    """

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Return the environment's value, unless such a profile has one."""
        if is_settled(ctx, str(self.name)):
            return None
        return super().resolve_envvar_value(ctx)


def use(context: click.Context, parameter: click.Parameter, name: str | None) -> None:
    """
    Make a profile's values the defaults of a command's options.

    Without a name this is the profile ``default``, if it exists. If the profile is
    given on the command line, its values come before the environment.

    Raises:
        click.BadParameter: there is no such profile, or the file cannot be used.
    """
    path = Path(os.environ.get(FILE) or Path(click.get_app_dir("safeconsumer")))
    path = path if FILE in os.environ else path / "profiles.toml"
    profiles = _read(path, is_wanted=name is not None)
    if name is not None and name not in profiles:
        known = ", ".join(sorted(profiles)) or "none"
        message = f"no profile {name!r} in {path}; there are: {known}"
        raise click.BadParameter(message)
    values = _values(profiles.get(name or _DEFAULT, {}), path)
    context.default_map = {**values, **(context.default_map or {})}
    source = context.get_parameter_source(str(parameter.name))
    if source is ParameterSource.COMMANDLINE:
        context.meta[_SETTLED] = {
            *values,
            *(_OF_A_CLUSTER if _WHERE & {*values} else ()),
        }


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
        message = f"{path}: a profile must be a table, such as [{_DEFAULT}]"
        raise click.BadParameter(message)
    values = {}
    for key, value in profile.items():
        if key not in _KEYS or not isinstance(value, str):
            message = (
                f"{path}: {key!r} is not a setting of a profile; there are: "
                f"{', '.join(_KEYS)}, each a text"
            )
            raise click.BadParameter(message)
        is_path = key in {"config", "journal"}
        there = path.parent / expanded(value) if is_path else value
        values[_KEYS[key]] = str(there)
    return values


def expanded(text: str) -> Path:
    """
    Return a path in which ``~`` stands for a home folder.

    Raises:
        click.BadParameter: that home folder is unknown.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        message = f"{text}: {error}"
        raise click.BadParameter(message) from error


def is_settled(context: click.Context, name: str) -> bool:
    """Tell whether a profile, given on the command line, settles a parameter."""
    return name in context.meta.get(_SETTLED, ())


def another_cluster(context: click.Context) -> str | None:
    """Return what names another cluster than the profile does; None if nothing."""
    profile = context.default_map or {}
    nearer = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    for name in sorted(_WHERE) if _WHERE & {*profile} else ():
        said = context.params.get(name)
        is_nearer = context.get_parameter_source(name) in nearer
        if is_nearer and str(said) != str(profile.get(name)):
            return str(said)
    return None
