"""Checks the installed version of kafka-python, and explains failed imports."""

import re
from functools import cache
from importlib import import_module

from safeconsumer.errors.base import UnsupportedKafkaPythonError

# Versions 3.0.0 to 3.0.8 leave kept partitions blocked after a rebalance with a
# listener (dpkp/kafka-python #3131). Before 3.0 the modules have other names. Version
# 3.1 is not released yet. This package works with kafka-python's main branch of August
# 2026 (a3b3836f), except for the points in design/releases.md, and each nightly run
# tests that branch. A release is supported as soon as the tests pass with it.
OLDEST = (3, 0, 9)
FIRST_UNSUPPORTED = (3, 1)
SUPPORTED = "kafka-python>=3.0.9,<3.1"


def is_supported(version: str) -> bool:
    """Return whether a version of kafka-python is in the supported range."""
    return OLDEST <= _numbers(version) < FIRST_UNSUPPORTED


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


@cache
def require_supported() -> None:
    """
    Refuse an unsupported kafka-python; only the first call performs the check.

    Raises:
        UnsupportedKafkaPythonError: the version is not supported; the message names it
            and the supported range.
    """
    version = str(import_module("kafka").__version__)
    if not is_supported(version):
        found = f"kafka-python {version}"
        raise not_supported(found, _why_not(version))


def _why_not(version: str) -> str:
    if _numbers(version) < OLDEST:
        return "it is older than the versions that this package supports"
    return "it is newer than the tested versions, and may differ inside"


def not_supported(found: str, why: str) -> UnsupportedKafkaPythonError:
    """Return an error with the installed version, the reason, and the install command."""
    message = f"{found} is not supported ({why}): install '{SUPPORTED}'"
    return UnsupportedKafkaPythonError(message)


def explain_failed_import(
    error: ImportError | AttributeError,
) -> UnsupportedKafkaPythonError | None:
    """
    Explain why the import of one of our modules failed, if kafka-python is the cause.

    Returns:
        The error to raise in place of ``error``; None if kafka-python is not the cause.
    """
    is_kafkas = str(error.name).partition(".")[0] == "kafka"
    if isinstance(error, ImportError) and not is_kafkas:
        return None
    try:
        version = str(import_module("kafka").__version__)
    except (ImportError, AttributeError) as missing:
        return not_supported("what is installed as 'kafka'", str(missing))
    if is_supported(version) and isinstance(error, AttributeError):
        return None
    return not_supported(f"kafka-python {version}", str(error))
