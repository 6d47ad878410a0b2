"""Implements the command line, ``safeconsumer``."""
