"""Adapts kafka-python; this is the only package that uses kafka-python's private names."""
