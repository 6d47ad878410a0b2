"""
The operator's page in a browser: what holds, who obeys, and placing and lifting holds.
"""
