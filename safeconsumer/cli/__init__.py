"""
The command line: ``safeconsumer``.
"""
