"""Adapts kafka-python for who asks about a group: the command line, the console, reports."""
