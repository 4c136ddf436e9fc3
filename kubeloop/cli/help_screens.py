"""Help of the commands: the common options in groups on one screen (--help), and all options (--help-all)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NoReturn

import click

from kubeloop.cli.options.options import GroupedOption, declared_options
from kubeloop.kube.user_error import UserError, closest_names

_SHOW_ALL = f"{__name__}.show_all"  # key in the context's meta
_COLUMN = 30  # maximum width of the names of options, as click's default

# commands of kubectl v1.36 that kubeloop may lack
_KUBECTL = (
    *("annotate", "api-resources", "api-versions", "apply", "attach", "auth", "autoscale", "certificate"),
    *("cluster-info", "config", "cordon", "cp", "create", "debug", "delete", "describe", "diff", "drain", "edit"),
    *("events", "exec", "expose", "get", "kustomize", "label", "logs", "patch", "plugin", "port-forward", "proxy"),
    *("replace", "rollout", "scale", "set", "taint", "top", "uncordon", "wait"),
)


def _print_all(context: click.Context, _option: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        context.meta[_SHOW_ALL] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()


class HelpCommand(click.Command):
    """A command with --help and --help-all. section: heading in the list of commands."""

    def __init__(self, *arguments: Any, section: str = "Other commands", **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.section = section

    @property
    def params(self) -> list[click.Parameter]:
        return self._all_params

    @params.setter
    def params(self, other: list[click.Parameter]) -> None:
        self._other_params = other

    @cached_property
    def _all_params(self) -> list[click.Parameter]:
        """Options of with_options(), which take 5 ms and 1 MB for all commands, and other parameters."""
        return [*declared_options(self.callback), *self._other_params]

    @cached_property
    def _help_all(self) -> GroupedOption:
        return GroupedOption(
            ["--help-all"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_print_all,
            help="Show all options and exit.",
        )

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), self._help_all]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the common options by group, for --help-all all options."""
        show_all = bool(ctx.meta.get(_SHOW_ALL))
        groups: dict[str, list[tuple[str, str]]] = {}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx) if isinstance(option, click.Option) else None
            if record is None or not (show_all or (option in self.params and getattr(option, "common", True))):
                continue
            if show_all and isinstance(option, GroupedOption):
                record = record[0], record[1] + option.details()
            groups.setdefault(getattr(option, "group", GroupedOption.group), []).append(record)
        write_sections(formatter, groups)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if not ctx.meta.get(_SHOW_ALL) and not all(getattr(option, "common", True) for option in self.params):
            formatter.write_paragraph()
            formatter.write_text(f"{ctx.command_path} --help-all lists all options.")


def write_sections(formatter: click.HelpFormatter, sections: Mapping[str, list[tuple[str, str]]]) -> None:
    """Write lists of names and texts below their headings, with their texts in the same column."""
    lengths = [len(name) for records in sections.values() for name, _ in records]
    width = max((length for length in lengths if length <= _COLUMN), default=_COLUMN)
    for title, records in sections.items():
        with formatter.section(title):
            formatter.write_dl([(name.ljust(width), text) for name, text in records], col_max=width)


class HelpGroup(HelpCommand, click.Group):
    """A group of commands, which without a command shows its help."""

    command_class = HelpCommand

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if args or ctx.resilient_parsing else ["--help"])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section, then the options."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            record = name, command.get_short_help_str(formatter.width)
            sections.setdefault(getattr(command, "section", ""), []).append(record)
        write_sections(formatter, sections)
        super().format_options(ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        formatter.write_text(f"{ctx.command_path} COMMAND --help shows the options of a command.")

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name. Raises UserError with a suggestion if there is none."""
        name = args[0]
        if name not in self.commands and not name.startswith("-") and not ctx.resilient_parsing:
            self._raise_unknown(ctx, name)
        return super().resolve_command(ctx, args)

    def _raise_unknown(self, ctx: click.Context, name: str) -> NoReturn:
        hints = {word: f"use kubectl {word}" for word in _KUBECTL}
        for group in self.commands.values():
            commands = group.commands if isinstance(group, click.Group) else ()
            hints |= {command: f"use {ctx.command_path} {group.name} {command}" for command in commands}
        hints |= {command: f"did you mean {ctx.command_path} {command}?" for command in self.commands}
        match = next(iter(closest_names(name, sorted(hints))), "")
        hint = hints.get(match, f"{ctx.command_path} --help lists the commands")
        raise UserError(f"{ctx.command_path} has no command {name!r}", hint=hint)
