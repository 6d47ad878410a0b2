"""
Pausing a whole consumer group, durably, from outside. Imported only when it is used.
"""
