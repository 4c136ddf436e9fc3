"""Help of the commands: one screen with the common options, --help-all, and suggestions for unknown commands."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner, Result

from kubeloop import __version__
from kubeloop.cli.help_screens import HelpGroup
from kubeloop.cli.main import commands
from kubeloop.kube.user_error import UserError

_SCREEN_LINES, _SCREEN_COLUMNS = 40, 100


def all_commands(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command with its words on the command line, groups included."""
    yield path, group
    for name, command in group.commands.items():
        if isinstance(command, HelpGroup):
            yield from all_commands(command, *path, name)
        else:
            yield (*path, name), command


COMMANDS = {" ".join(path): command for path, command in all_commands(commands)}
GROUPS = {path: command for path, command in COMMANDS.items() if isinstance(command, HelpGroup)}
each_command = pytest.mark.parametrize("command", COMMANDS)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(commands, arguments, terminal_width=_SCREEN_COLUMNS, prog_name="kubeloop")


def option_names(command: str) -> set[str]:
    options = [option for option in COMMANDS[command].params if isinstance(option, click.Option) and not option.hidden]
    return {name for option in options for name in (*option.opts, *option.secondary_opts)}


def listed(text: str) -> set[str]:
    """Return the names of options in the left column of a help text."""
    columns = [line.strip().partition("  ")[0] for line in text.splitlines() if line.startswith("  -")]
    return {word.rstrip(",") for column in columns for word in column.split() if word.startswith("-")}


@each_command
def test_help_fits_on_one_screen(command: str):
    result = run(*command.split(), "--help")
    lines = result.output.splitlines()
    assert result.exit_code == 0
    assert len(lines) <= _SCREEN_LINES, f"{len(lines)} lines: declare further options with common=False"
    assert max(map(len, lines)) <= _SCREEN_COLUMNS


@each_command
def test_help_all_lists_every_option(command: str):
    result = run(*command.split(), "--help-all")
    assert result.exit_code == 0
    assert listed(result.output) == option_names(command) | {"-h", "--help", "--help-all"}


@each_command
def test_help_lists_the_common_options_and_names_help_all(command: str):
    text = run(*command.split(), "--help").output
    options = [option for option in COMMANDS[command].params if isinstance(option, click.Option) and not option.hidden]
    rest = option_names(command) - listed(text)
    assert {name for option in options if getattr(option, "common", True) for name in option.opts} <= listed(text)
    assert (f"kubeloop {command} --help-all lists all options." in text) == bool(rest)


@pytest.mark.parametrize("command", ["up", "run", "apiserver"])
def test_help_has_no_gates_legacy_options_or_options_of_controllers(command: str):
    text = run(command, "--help").output
    rare = {"--feature-gates", "--algorithm-provider", "--policy-config-file", "--concurrent-job-syncs"}
    assert rare.isdisjoint(listed(text))
    assert "PodDeletionCost" not in text


@pytest.mark.parametrize(
    ("command", "gates"),
    [
        ("run", {"PodDeletionCost", "GangScheduling"}),
        ("up", {"PodDeletionCost", "GangScheduling", "OpenAPIEnums"}),
        ("apiserver", {"PodDeletionCost", "OpenAPIEnums"}),
        ("explain", {"GangScheduling"}),
    ],
)
def test_help_all_lists_the_gates_with_an_effect_in_the_command(command: str, gates: set[str]):
    text = run(command, "--help-all").output
    names = ("PodDeletionCost", "GangScheduling", "OpenAPIEnums", "KubeletPSI")  # the last one has no effect at all
    assert {name for name in names if f" kube:{name}=true|false (" in text} == gates


def test_help_all_lists_the_controllers():
    text = run("run", "--help-all").output
    assert "deployment, replicaset," in text
    assert "deployment, replicaset," not in run("run", "--help").output


@pytest.mark.parametrize("group", GROUPS)
def test_group_without_command_shows_its_help(group: str):
    result = run(*group.split())
    assert result.exit_code == 0
    assert result.output == run(*group.split(), "--help").output
    assert all(f"\n  {name} " in result.output for name in GROUPS[group].commands)


def test_version_option_prints_what_version_prints():
    assert run("--version").output == run("version").output
    assert __version__ in run("--version").output


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ("logs", "use kubectl logs"),
        ("log", "use kubectl logs"),
        ("get pods", "use kubectl get"),
        ("port-forward", "use kubectl port-forward"),
        ("expalin pod/web", "did you mean kubeloop explain?"),
        ("node list", "did you mean kubeloop nodes?"),
        ("uncordon", "use kubeloop nodes uncordon"),
        ("nodes drain node-0", "use kubectl drain"),
        ("nodes lst", "did you mean kubeloop nodes list?"),
        ("zzz", "kubeloop --help lists the commands"),
    ],
)
def test_unknown_command_suggests_what_was_meant(arguments: str, hint: str):
    result = run(*arguments.split())
    assert isinstance(result.exception, UserError)
    assert result.exception.hint == hint


def test_unknown_option_before_a_command_is_named():
    result = run("--no-such", "up")
    assert result.exit_code == 2
    assert "No such option" in result.output
