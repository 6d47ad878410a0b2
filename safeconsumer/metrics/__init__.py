"""
What events become: one module per sink, none imported before the first event.
"""
