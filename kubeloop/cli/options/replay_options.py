"""Options of `kubeloop replay`."""

from __future__ import annotations

from pathlib import Path

import click

from kubeloop.cli.options.options import FILE, OUTPUT, CommandOptions, option


class ReplayOptions(CommandOptions):
    """Configurations and outputs of `kubeloop replay`."""

    config: Path | None = option(
        "File with the KubeSchedulerConfiguration of the replay (default: kube-scheduler's defaults).",
        "--scheduler-config",
        "--config",
        default=None,
        type=FILE,
    )
    compare: tuple[Path, ...] = option(
        "File with another KubeSchedulerConfiguration; the report shows both. May be repeated.",
        default=(),
        multiple=True,
        type=FILE,
    )
    seed: int = option("Seed of all random decisions.", default=0, type=click.IntRange(0))
    as_json: bool = option("Print the report as a JSON document.", "--json", default=False, is_flag=True)
    html: Path | None = option("File for the report as an HTML page.", default=None, type=OUTPUT)
    traces: Path | None = option(
        "File for the traces of the first replay, as OTLP JSON; kubeloop trace --from reads it.",
        default=None,
        type=OUTPUT,
    )
