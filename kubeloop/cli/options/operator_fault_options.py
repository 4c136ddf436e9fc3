"""Options of `kubeloop test-operator`."""

from __future__ import annotations

from pathlib import Path

import click

from kubeloop.cli.options.options import FILE, OUTPUT, CommandOptions, duration, option


class OperatorFaultOptions(CommandOptions, group="Operator and scenario"):
    """Operator, scenario, runs and output of `kubeloop test-operator`."""

    run: str = option(
        "Command of the operator, without a shell. {kubeconfig} is replaced by the file of its kubeconfig, which"
        " $KUBECONFIG names as well, and {port:NAME} by a free port.",
        default="",
        required=True,
        metavar="COMMAND",
    )
    files: tuple[Path, ...] = option(
        "Manifests: CustomResourceDefinitions, custom resources and what else the operator needs. May be repeated.",
        "-f",
        "--filename",
        default=(),
        multiple=True,
        type=click.Path(path_type=Path, allow_dash=True),
    )
    steps: Path | None = option(
        "File with the steps of users (default: the custom resources of -f are applied, then deleted).",
        default=None,
        type=FILE,
    )
    user: str = option(
        "User of the operator's client certificate, such as system:serviceaccount:NAMESPACE:NAME, with the permissions"
        " that -f grants (default: an administrator).",
        default="",
        metavar="USER",
        common=False,
    )
    only: tuple[str, ...] = option(
        "Runs to perform: crash-after (at all writes), 7 (all faults at this write), crash-after:7, or"
        " 'crash-after:create of Secret'. May be repeated.",
        default=(),
        multiple=True,
        metavar="FAULT:WRITE",
        group="Runs",
    )
    jobs: int | None = option(
        "Number of runs at a time (default: 8 per core, at most 16; 1 if the operator listens on a fixed port or talks"
        " to other servers).",
        default=None,
        type=click.IntRange(1),
        group="Runs",
    )
    seconds: float | None = option(
        "Time after which no further run starts, in seconds.",
        default=None,
        type=click.FloatRange(0),
        group="Runs",
        common=False,
    )
    timeout: float = duration(
        "Longest time for the operator to reach the expected state after a fault.",
        default=70.0,
        least=0.0,
        or_more=False,
        group="Runs",
    )
    quiet: float = duration(
        "Time without a change after which the first run without faults is complete.",
        default=5.0,
        or_more=False,
        group="Runs",
        common=False,
    )
    controllers: str = option(
        "Comma-separated list of built-in controllers that run, too; '*' for all, '-NAME' to exclude one.",
        default="*",
        group="Cluster",
        common=False,
    )
    nodes: int = option("Number of simulated nodes.", default=3, type=click.IntRange(0), group="Cluster", common=False)
    resolve: tuple[str, ...] = option(
        "Address at which the webhooks of a Service are reached; the port may be {port:NAME}, as in --run. May be"
        " repeated.",
        default=(),
        multiple=True,
        metavar="NAME.NAMESPACE.svc=HOST:PORT",
        group="Cluster",
        common=False,
    )
    as_json: bool = option("Print the report as JSON.", "--json", default=False, group="Output", is_flag=True)
    junit: Path | None = option(
        "File to write JUnit XML to.",
        default=None,
        type=OUTPUT,
        metavar="FILE",
        group="Output",
        common=False,
    )
    logs: Path | None = option(
        "Folder for the operator's output of each run.",
        default=None,
        type=click.Path(path_type=Path, file_okay=False),
        group="Output",
        common=False,
    )
