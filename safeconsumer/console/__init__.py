"""
Serves the operators' page: shows holds and who obeys, places and lifts holds.
"""
