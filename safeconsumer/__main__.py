"""Runs the command as ``python -m safeconsumer``, even if its script is not in PATH."""

from safeconsumer.cli.main import main

main()
