"""
Text from elsewhere on somebody's terminal.
"""


def printable(text: str) -> str:
    """
    Return text with everything shown as an escape that is not to be seen.

    Names come from other programs and other people: an escape sequence would steer the
    terminal, a line end would forge a line.
    """
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def printable_lines(text: str) -> str:
    """
    Return the same of text whose line ends are our own.
    """
    return "\n".join(map(printable, text.split("\n")))
