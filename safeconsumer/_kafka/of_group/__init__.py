"""Adapts kafka-python for group control: for members, the command line and the console."""
