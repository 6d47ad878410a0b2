"""Runs the command as ``python -m safeconsumer``, if its script is not in PATH."""

from safeconsumer.cli.main import main

main()
