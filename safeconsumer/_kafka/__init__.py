"""Adapts kafka-python: the only package that uses its private names."""
