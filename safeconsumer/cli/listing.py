"""Lists the commands in a command group's help."""

import click


class Listing(click.Group):
    """A group whose help shows each command's first sentence whole; click would cut it."""

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write the list of commands."""
        for head, names in self.uses(ctx).items():
            with formatter.section(head):
                formatter.write_dl(
                    [
                        (name, sentence)
                        for name in names
                        if (sentence := self._sentence(ctx, name)) is not None
                    ]
                )

    def format_epilog(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's
        formatter: click.HelpFormatter,
    ) -> None:
        """Write a line saying that each command's help lists the exit statuses."""
        formatter.write("\nThe help of each command ends with the exit statuses.\n")

    def _sentence(self, ctx: click.Context, name: str) -> str | None:
        try:
            command = self.get_command(ctx, name)
        except ModuleNotFoundError as error:
            # An extra is missing; running the command shows which.
            return f"(needs {error.name}, which is not installed)"
        if command is None:
            return None
        return " ".join((command.help or "").split("\n\n")[0].split())

    def uses(self, ctx: click.Context) -> dict[str, list[str]]:
        """Return the names of the commands, by purpose."""
        return {"Commands": self.list_commands(ctx)}
