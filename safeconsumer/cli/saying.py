"""
Makes text from elsewhere safe to print on a terminal.
"""


def printable(text: str) -> str:
    """
    Return text with every invisible character shown as an escape.

    Names come from other programs and other people: an escape sequence would control
    the terminal, a line end would forge a line.
    """
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def printable_lines(text: str) -> str:
    """
    Do the same to text whose line ends are our own.
    """
    return "\n".join(map(printable, text.split("\n")))
