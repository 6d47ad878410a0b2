"""
A picture of what journals tell: told, laid out, drawn.
"""
