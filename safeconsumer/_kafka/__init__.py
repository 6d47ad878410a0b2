"""
The only package that knows kafka-python's private names.
"""
