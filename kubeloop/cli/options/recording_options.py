"""Options of `kubeloop record` and `kubeloop plan`, and the changes of plans and replays."""

from __future__ import annotations

from pathlib import Path

import click

from kubeloop.cli.options.options import (
    FILE,
    KUBE_CONTEXT,
    KUBECONFIG,
    LOG_FORMAT,
    OUTPUT,
    VERBOSITY,
    CommandOptions,
    LogFormat,
    Verbosity,
    completer,
    option,
)


class RecordOptions(CommandOptions, group="Recording"):
    """Cluster and output of `kubeloop record`."""

    kubeconfig: Path | None = KUBECONFIG
    kube_context: str | None = KUBE_CONTEXT
    namespace: str = option(
        "Namespace to record (default: all).", "-n", "--namespace", default="", shell_complete=completer("namespaces")
    )
    once: bool = option("Record the present state and exit, without the changes.", default=False, is_flag=True)
    append: bool = option("Continue an existing recording of the cluster.", default=False, is_flag=True)
    anonymize: Path | None = option(
        "Replace names, values of labels and images by the key in this file, which is created if it does not exist.",
        default=None,
        type=FILE,
        metavar="KEY_FILE",
    )
    verbosity: Verbosity = VERBOSITY
    log_format: LogFormat = LOG_FORMAT


class ChangeOptions(CommandOptions, group="Changes"):
    """Changes of a cluster in memory."""

    files: tuple[Path, ...] = option(
        "Manifests to apply: file or folder, - for stdin. Can be repeated.",
        "-f",
        "--filename",
        default=(),
        multiple=True,
        type=click.Path(path_type=Path, allow_dash=True),
    )
    namespace: str = option(
        "Namespace of manifests without one (default: 'default'), and of --scale.",
        "-n",
        "--namespace",
        default="",
        shell_complete=completer("namespaces"),
    )
    drain: tuple[str, ...] = option(
        "Node to drain. Can be repeated.", default=(), multiple=True, metavar="NODE", shell_complete=completer("nodes")
    )
    cordon: tuple[str, ...] = option(
        "Node to cordon. Can be repeated.",
        default=(),
        multiple=True,
        metavar="NODE",
        shell_complete=completer("nodes"),
    )
    delete_nodes: tuple[str, ...] = option(
        "Label selector, or name, of nodes to delete. Can be repeated.", default=(), multiple=True, metavar="SELECTOR"
    )
    add_nodes: int = option("Number of nodes to add, like that of --like.", default=0, type=click.IntRange(min=0))
    like: str = option(
        "Node whose labels, taints and resources new nodes have.",
        default="",
        metavar="NODE",
        shell_complete=completer("nodes"),
    )
    scale: tuple[str, ...] = option(
        "Replicas of a workload, such as deploy/web=50. Can be repeated.",
        default=(),
        multiple=True,
        metavar="KIND/NAME=N",
    )
    fit: str = option(
        "Node: add the fewest nodes like this one with which nothing is pending.",
        default="",
        metavar="NODE",
        shell_complete=completer("nodes"),
    )


class PlanOptions(ChangeOptions, group="Changes"):
    """Cluster, changes and output of `kubeloop plan`."""

    cluster: tuple[Path, ...] = option(
        "Cluster: a recording, manifests, or what docs/recording.md lists (default: the live one). Can be repeated.",
        default=(),
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="FILE",
        group="Cluster",
    )
    kubeconfig: Path | None = KUBECONFIG
    kube_context: str | None = KUBE_CONTEXT
    at: float | None = option(
        "Seconds from the start of the recording (default: its end).",
        default=None,
        type=click.FloatRange(min=0),
        group="Cluster",
    )
    scheduler_config: Path | None = option(
        "File with a KubeSchedulerConfiguration (default: kube-scheduler's).", default=None, type=FILE
    )
    as_json: bool = option("Print the plan as JSON.", "--json", default=False, group="Output", is_flag=True)
    markdown: bool = option("Print the plan as Markdown.", default=False, group="Output", is_flag=True)
    junit: Path | None = option(
        "File to write JUnit XML to.", default=None, type=OUTPUT, metavar="FILE", group="Output"
    )
