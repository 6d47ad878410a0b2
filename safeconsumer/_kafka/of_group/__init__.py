"""Adapts kafka-python for group control: members, the command line, the console."""
