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
    "owner": "owner",
    "topic-prefix": "topic_prefix",
}
# Both say where the cluster is: of a login and an address from two places one may be
# for production.
_WHERE: Mapping[str, str] = {
    "bootstrap": "SAFECONSUMER_BOOTSTRAP",
    "config_file": "SAFECONSUMER_CONFIG",
}
# The key in a command's context that says whether a profile was named on the command
# line.
_IS_NAMED = "safeconsumer.profile"


class Profiled(click.Option):
    """
    An option that a profile may set.

    A profile that is named on the command line is asked instead of the environment:
    with ``--profile staging`` staging is meant, whatever a shell exports.
    """

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        """Return the environment's value, unless a profile was named."""
        return None if ctx.meta.get(_IS_NAMED) else super().resolve_envvar_value(ctx)


def use(context: click.Context, parameter: click.Parameter, name: str | None) -> None:
    """
    Make a profile's values the defaults of a command's options.

    Without a name this is the profile ``default``, if it exists. Unless a profile is
    named on the command line the environment counts more, and if it says where the
    cluster is, nothing of the profile does.

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
    source = context.get_parameter_source(str(parameter.name))
    context.meta[_IS_NAMED] = source is ParameterSource.COMMANDLINE
    if not context.meta[_IS_NAMED] and any(map(os.environ.get, _WHERE.values())):
        values = {key: one for key, one in values.items() if key not in _WHERE}
    context.default_map = {**values, **(context.default_map or {})}


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
        there = path.parent / expanded(value) if key == "config" else value
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
