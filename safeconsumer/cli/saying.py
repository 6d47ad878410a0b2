"""Makes text from elsewhere safe to print, and lists commands with whole sentences."""

import click


def printable(text: str) -> str:
    """
    Return text with every invisible character shown as an escape.

    Names come from other programs and other people: an escape sequence would control
    the terminal, a line end would forge a line.
    """
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def printable_lines(text: str) -> str:
    """Do the same to text whose line ends are our own."""
    return "\n".join(map(printable, text.split("\n")))


class Listing(click.Group):
    """A group whose help has the whole first sentence of each command; click cuts it."""

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, " ".join((one.help or "").split("\n\n")[0].split()))
                    for name in self.list_commands(ctx)
                    if (one := self.get_command(ctx, name)) is not None
                ]
            )
