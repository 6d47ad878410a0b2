"""Runs the command line as ``python -m safeconsumer``, even if the script is not in PATH."""

from safeconsumer.cli.main import main

main()
