"""Chooses the decoder for record batches, and logs the choice."""

import logging
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path

from attrs import frozen

from safeconsumer._interrupts import is_from_handler
from safeconsumer._kafka.decoding.python_records import PythonRecords
from safeconsumer._kafka.decoding.records import CompiledRecords
from safeconsumer._kafka.pausing.steps import Steps
from safeconsumer.errors.base import DecoderSettingError, MissingExtraError

log = logging.getLogger("safeconsumer")
_logged: set[str] = set()

CHOICES = ("auto", "python", "compiled")

_INSTALL = (
    "pip install --force-reinstall --no-deps --no-cache-dir --no-binary safeconsumer "
    "safeconsumer compiles it, or, in a checkout, pip install --force-reinstall "
    "--no-deps -e . does; both need a C compiler and Python's headers"
)


@frozen
class DecoderChoice:
    """
    The decoder in use.

    Attributes:
        name: ``python`` or ``compiled``.
        detail: the file name of the compiled decoder, or the reason why it is not used.
        records: the class that is used in place of upstream's ``PartitionRecords``.
        steps: the class that yields a partition's records while a program iterates.
    """

    name: str
    detail: str
    records: type
    steps: type[Steps] = Steps


def choose(wanted: str) -> DecoderChoice:
    """
    Choose a decoder; ``auto`` means the compiled one if it is installed and works.

    Raises:
        DecoderSettingError: ``wanted`` is not one of ``CHOICES``.
        MissingExtraError: ``wanted`` is ``compiled``, but this installation was built
            without that decoder.
    """
    if wanted not in CHOICES:
        message = f"decoder must be one of {', '.join(CHOICES)}, not {wanted!r}"
        raise DecoderSettingError(message)
    if wanted == "python":
        return DecoderChoice("python", "as requested", PythonRecords)
    try:
        return _compiled()
    except Exception as error:
        if is_from_handler(error):
            raise
        if wanted == "compiled":
            message = f"the compiled decoder cannot be used ({error}): {_INSTALL}"
            raise MissingExtraError(message) from error
        return DecoderChoice("python", str(error), PythonRecords)


def log_once(choice: DecoderChoice) -> None:
    """Log which decoder is in use, once for each decoder in this process."""
    if choice.name not in _logged:
        _logged.add(choice.name)
        log.info("record batches: %s decoder (%s)", choice.name, choice.detail)


@cache
def _compiled() -> DecoderChoice:
    try:
        batches = import_module("safeconsumer._kafka.decoding._batches")
    except ModuleNotFoundError as error:
        message = "this installation was built without it"
        raise ImportError(message) from error
    file = Path(str(batches.__file__))
    sources = sorted(file.parent.glob("*.[ch]"))
    content = b"".join(source.read_bytes() for source in sources)
    if sha256(content).hexdigest() != batches.SOURCE:
        message = f"{file.name} was built from other sources than those beside it"
        raise ImportError(message)
    return DecoderChoice("compiled", file.name, CompiledRecords, batches.Steps)
