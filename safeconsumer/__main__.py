"""
``python -m safeconsumer``: the command, where its script is not in PATH.
"""

from safeconsumer.cli.main import main

main()
