"""
The only package that knows kafka-python's private names.
"""

from safeconsumer._kafka.fixes.secrets import hide_logins

hide_logins()
