"""Options declared as fields: parsing of a command line, and conversion back to one."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kubeloop.cli.apiserver import node_settings
from kubeloop.cli.help_screens import HelpCommand
from kubeloop.cli.main import commands
from kubeloop.cli.options.options import (
    ClusterGateOptions,
    DevClusterOptions,
    DisplayOptions,
    FeatureGateOptions,
    GroupedOption,
    ServerOptions,
    UpOptions,
    arguments_of,
    with_options,
)
from kubeloop.kube.feature_gates import GANG_SCHEDULING_GATES
from kubeloop.kube.user_error import UserError
from kubeloop.testing.cluster_options import ClusterOptions
from support.processes.cli_processes import ROOT


def parsed(*arguments: str):
    """Return the arguments that a command with three classes of options receives."""
    arguments_seen = []

    @click.command(cls=HelpCommand)
    @click.argument("rest", nargs=-1)
    @with_options(DevClusterOptions, UpOptions, DisplayOptions)
    def command(*options, rest):
        arguments_seen.extend([*options, rest])

    command.main([*arguments], standalone_mode=False)
    return arguments_seen


def test_unknown_option_is_an_error():
    with pytest.raises(TypeError, match="UpOptions has no option no_such"):
        UpOptions(no_such=1)  # type: ignore[call-arg]


def test_options_have_defaults():
    *options, rest = parsed()
    assert [vars(values) for values in options] == [
        vars(DevClusterOptions()),
        vars(UpOptions()),
        vars(DisplayOptions()),
    ]
    assert rest == ()


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(DevClusterOptions(), id="defaults"),
        pytest.param(
            DevClusterOptions(nodes=0, start_delay=0.125, probe_delays=True, zones=30), id="numbers and a flag"
        ),
        pytest.param(
            DevClusterOptions(missing_images=("a/*", "-b"), command_exits=False, complete_bare_pods=True),
            id="behaviour of pods",
        ),
        pytest.param(
            DevClusterOptions(enable_bootstrap_token_auth=True),
            id="flag without a value",
        ),
        pytest.param(DevClusterOptions(stages=(Path("a.yaml"), Path("/b c.yaml"))), id="repeated option"),
        pytest.param(DevClusterOptions(kubeconfig=Path("-k"), data_dir=Path("some/where")), id="paths"),
        pytest.param(DevClusterOptions(node_cpu="-a", node_memory=""), id="value that looks like an option"),
    ],
)
def test_arguments_of_round_trips_through_the_parser(options):
    assert vars(parsed(*arguments_of(options))[0]) == vars(options)


def test_arguments_of_options_without_missing_images_set_none():
    arguments = arguments_of(DevClusterOptions(missing_images=()))
    assert node_settings(parsed(*arguments)[0], 50.0).missing_images == ()
    assert "*:404" in node_settings(parsed()[0], 50.0).missing_images


def test_options_support_names_flags_and_repetition():
    _, files, shown, rest = parsed("-f", "a", "x", "--filename=b", "--json", "--timeout", "3")
    assert files.files == (Path("a"), Path("b"))
    assert vars(shown) == {"once": False, "timeout": 3.0, "as_json": True}
    assert rest == ("x",)


@pytest.mark.parametrize(
    ("text", "seconds"), [("3", 3.0), ("2.5", 2.5), ("250ms", 0.25), ("1m30s", 90.0), ("1e2", 100.0), ("0.001", 0.001)]
)
def test_duration_accepts_seconds_and_go_notation(text, seconds):
    assert parsed("--timeout", text)[2].timeout == seconds


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1d", "", "soon"])
def test_duration_rejects_invalid_text(text):
    with pytest.raises(click.BadParameter, match="is not a duration, such as 15, 15s or 1m30s"):
        parsed(f"--start-delay={text}")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--start-delay=-1s"], "-1s is not at least 0s"),
        (["--timeout=0"], "0 is not more than 0s"),
    ],
)
def test_duration_rejects_values_below_the_minimum(arguments, problem):
    with pytest.raises(click.BadParameter, match=problem):
        parsed(*arguments)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--leader-elect-lease-duration=10s"], "the lease duration must be longer than the renew deadline"),
        (["--leader-elect-retry-period=9s"], "the renew deadline must be longer than 1.2 times the retry period"),
        (["--leader-elect-resource-name="], "--leader-elect-resource-name is empty"),
        (["--leader-elect-resource-namespace="], "--leader-elect-resource-namespace is empty"),
    ],
)
def test_run_rejects_invalid_leader_election_options(arguments, problem):
    result = CliRunner().invoke(commands, ["run", "--leader-elect", *arguments])
    assert isinstance(result.exception, UserError)
    assert problem in str(result.exception)


@pytest.mark.parametrize("token", ["ä", "a\nb", "\x00"])
def test_apiserver_rejects_a_token_unfit_for_a_header(token):
    result = CliRunner().invoke(commands, ["apiserver", f"--token={token}"])
    assert "a token must be one line of printable ASCII" in result.output


@pytest.mark.parametrize("command", ["up", "run", "apiserver"])
def test_option_names_are_unique(command):
    names = [name for option in commands.commands[command].params for name in (*option.opts, *option.secondary_opts)]
    assert len(names) == len(set(names))


def test_help_lists_options_in_declaration_order_with_defaults():
    text = CliRunner().invoke(commands, ["run", "--help-all"]).output
    in_order = [
        "--kubeconfig",
        "--controllers",
        "--config FILE",
        "Legacy scheduler configuration:",
        "--policy-configmap",
    ]
    places = [text.index(name) for name in [*in_order, "Process:", "--verbosity", "--leader-elect"]]
    assert places == sorted(places)
    assert ServerOptions().controllers in text
    assert "127.0.0.1]" in text


def test_feature_gates_are_read_from_all_occurrences():
    output = CliRunner().invoke(
        commands, ["apiserver", "--feature-gates", "MemoryQoS=true", "--feature-gates=NoSuchGate=true"]
    )
    assert isinstance(output.exception, UserError)
    assert str(output.exception) == "--feature-gates: unrecognized feature gate: NoSuchGate"


def test_feature_gate_options_round_trip_through_the_command_line():
    options = FeatureGateOptions(feature_gates=("MemoryQoS=true", "CRIListStreaming=true,SELinuxMount=true"))
    assert arguments_of(options) == [
        "--feature-gates=MemoryQoS=true",
        "--feature-gates=CRIListStreaming=true,SELinuxMount=true",
    ]


def test_gang_scheduling_enables_its_gates_unless_they_are_set():
    options = ClusterGateOptions(feature_gates=("WorkloadWithJob=false",), gang_scheduling=True)
    assert arguments_of(options) == ["--feature-gates=WorkloadWithJob=false", "--gang-scheduling"]
    gates = options.parsed()
    assert {name for name in GANG_SCHEDULING_GATES if not gates.enabled(name)} == {"WorkloadWithJob"}
    assert not ClusterGateOptions().parsed().enabled("GenericWorkload")


def documented_defaults() -> dict[str, tuple[str, str]]:
    """Return (default, default in test clusters) of the options in the table of docs/nodes.md, by field."""
    page = (ROOT / "docs" / "nodes.md").read_text()
    rows = re.findall(r"^\| `--([a-z-]+)` \|([^|\n]*)\|([^|\n]*)\|", page, re.MULTILINE)
    return {name.replace("-", "_"): (default.strip(), in_tests.strip()) for name, default, in_tests in rows}


def as_documented(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case tuple():
            return ", ".join(f"`{item}`" for item in value)
    return "" if value in ((), "") else str(value)


def test_documented_defaults_are_those_of_the_options():
    expected = {
        name: (as_documented(getattr(DevClusterOptions(), name)), as_documented(getattr(ClusterOptions(), name, "")))
        for name in documented_defaults()
    }
    assert documented_defaults() == expected
    behaviour = {"start_delay", "start_spread", "stop_delay", "job_duration", "probe_delays", "missing_images"}
    assert behaviour <= expected.keys()


@pytest.mark.parametrize(
    ("name", "maximum"),
    [
        ("max-endpoints-per-slice", 1000),
        ("mirroring-max-endpoints-per-subset", 1000),
        ("concurrent-service-endpoint-syncs", 50),
        ("mirroring-concurrent-service-endpoint-syncs", 50),
    ],
)
def test_count_above_the_maximum_of_kube_controller_manager_is_refused(name: str, maximum: int):
    result = CliRunner().invoke(commands, ["run", f"--{name}={maximum + 1}"])
    assert result.exit_code == 2
    assert f"{maximum + 1} is not in the range 1<=x<={maximum}" in str(result.output or result.exception)


def test_options_are_created_when_the_command_is_used(monkeypatch):
    created = []
    monkeypatch.setattr(GroupedOption, "__init__", lambda self, *_, **__: created.append(self))

    @click.command(cls=HelpCommand)
    @with_options(UpOptions)
    def command(_options):
        pass

    assert created == []
    assert len(command.params) == len(created) == len(UpOptions.declared())
