"""Test cases for any consumer class with kafka-python's methods."""
