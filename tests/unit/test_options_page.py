"""docs/options.md: the options that only --help-all shows."""

from __future__ import annotations

import click

from kubeloop.cli.main import commands
from kubeloop.cli.options.options import GroupedOption
from support.processes.cli_processes import ROOT


def rows_by_group() -> dict[str, list[str]]:
    """Return the rows of the page's tables by heading: option, commands, help with the default."""
    users: dict[str, dict[tuple[str, str], list[str]]] = {}
    for name, command in commands.commands.items():
        context = click.Context(command, parent=click.Context(commands, **commands.context_settings), info_name=name)
        for option in command.params:
            if isinstance(option, GroupedOption) and not option.common:
                record = option.get_help_record(context)
                if record is not None:  # it is not hidden
                    users.setdefault(option.group, {}).setdefault(record, []).append(name)
    return {
        group: [f"| `{names}` | {', '.join(user)} | {text.replace('|', '/')} |" for (names, text), user in rows.items()]
        for group, rows in users.items()
    }


def test_page_lists_every_option_that_help_omits():
    page = (ROOT / "docs" / "options.md").read_text()
    for group, rows in rows_by_group().items():
        section = page.partition(f"\n## {group}\n")[2].partition("\n## ")[0].splitlines()
        missing = [row for row in rows if row not in section]
        assert missing == [], f"add these rows to the section {group} of docs/options.md"
        assert [line for line in section if line.startswith("| `") and line not in rows] == [], "remove these rows"
