"""The command line: commands and their options. The module of each command is imported when it runs."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from kubeloop import KUBERNETES_VERSION, __version__
from kubeloop.cli.options.options import (
    FILE,
    ClusterGateOptions,
    CommandOptions,
    ControllerOptions,
    DevClusterOptions,
    DisplayOptions,
    ElectionOptions,
    ExplainOptions,
    FeatureGateOptions,
    NewNodes,
    ObserveElectionOptions,
    ObserveOptions,
    ProcessOptions,
    RunOptions,
    ServeOptions,
    ServerOptions,
    TraceOptions,
    UpOptions,
    with_options,
)
from kubeloop.cli.targets import join_target
from kubeloop.process.python_gc import importing

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(context_settings=_CONTEXT, no_args_is_help=True)
def commands() -> None:
    """Run Kubernetes controllers and scheduler in one process, with a development cluster and a trace per pod."""


@commands.command()
@with_options(UpOptions, DevClusterOptions, ProcessOptions, ControllerOptions, DisplayOptions, ClusterGateOptions)
def up(
    files: UpOptions,
    cluster: DevClusterOptions,
    process: ProcessOptions,
    controllers: ControllerOptions,
    display: DisplayOptions,
    gates: ClusterGateOptions,
) -> int:
    """Start a development cluster with all controllers.

    Applies manifests and shows the progress of their pods. Runs until Ctrl-C, unless --once is set.
    """
    with importing():
        from kubeloop.cli.up import up as start

    return start(files.files, cluster, process, controllers, display, gates)


@commands.command()
@with_options(DevClusterOptions, ServeOptions, ClusterGateOptions)
def apiserver(cluster: DevClusterOptions, server: ServeOptions, gates: ClusterGateOptions) -> int:
    """Start an API server with simulated nodes only."""
    with importing():
        from kubeloop.cli.apiserver import serve

    return serve(cluster, server, gates)


@commands.command()
@with_options(ServerOptions, ProcessOptions, ControllerOptions, RunOptions, ElectionOptions, FeatureGateOptions)
def run(
    server: ServerOptions,
    process: ProcessOptions,
    controllers: ControllerOptions,
    run_options: RunOptions,
    election: ElectionOptions,
    gates: FeatureGateOptions,
) -> int:
    """Run controllers and scheduler on an API server.

    Options take precedence over clientConnection and leaderElection in the file of --config.
    """
    with importing():
        from kubeloop.cli.options.scheduler_options import options_from_configuration
        from kubeloop.cli.run import run as start

    context = click.get_current_context()
    configured = {
        name: value
        for name, value in options_from_configuration(
            process.config, algorithm_provider=process.algorithm_provider, gates=gates.parsed()
        ).items()
        if context.get_parameter_source(name) is ParameterSource.DEFAULT
    }
    return start(
        _replaced(server, configured),
        process,
        controllers,
        _replaced(run_options, configured),
        _replaced(election, configured),
        gates,
    )


T = TypeVar("T", bound=CommandOptions)


def _replaced(options: T, values: Mapping[str, Any]) -> T:
    """Return the options with those of `values` that are fields of their class."""
    return options.replace(**{name: value for name, value in values.items() if name in options.declared()})


@commands.command()
@with_options(ObserveOptions, ObserveElectionOptions)
def observe(options: ObserveOptions, election: ObserveElectionOptions) -> int:
    """Trace the pods of an existing cluster, read-only.

    Watches pods, events, nodes and owners, with any control plane and any kubelet. Writes nothing to the cluster.
    """
    with importing():
        from kubeloop.cli.observe import observe as start

    return start(options, election)


@commands.command()
@with_options(TraceOptions)
@click.argument("target", nargs=-1, metavar="[pod NAME | pod/NAME | KIND/NAME]")
def trace(options: TraceOptions, target: tuple[str, ...]) -> int:
    """Show how long each phase of pod creation took.

    Of a pod, of the pods of an owner (deploy/NAME, sts/NAME, ds/NAME, job/NAME, cronjob/NAME, KIND.GROUP/NAME), of a
    pod group (podgroup/NAME), or of all pods.
    """
    from kubeloop.cli.trace.trace import show

    return show(join_target(target, verb="trace"), options)


@commands.command()
@with_options(ExplainOptions, FeatureGateOptions)
@click.argument("target", nargs=-1, required=True, metavar="pod NAME | pod/NAME | KIND/NAME")
def explain(options: ExplainOptions, gates: FeatureGateOptions, target: tuple[str, ...]) -> int:
    """Explain why a pod or a pod group (podgroup/NAME) is pending.

    Of an owner (deploy/NAME, sts/NAME, ds/NAME, job/NAME, cronjob/NAME), the first pending pod is explained.

    Lists the reasons by plugin with their nodes, what would help, and whether preemption would. A running kubeloop
    scheduler answers for its pods; in a cluster with another scheduler, this command reads the cluster once.
    """
    from kubeloop.cli.explain.explain import show

    return show(join_target(target, verb="explain") or "", options, gates)


@commands.group(no_args_is_help=True)
def nodes() -> None:
    """Add, remove and fail simulated nodes.

    The cluster is that of --kubeconfig, of $KUBECONFIG, or of the newest `kubeloop up` on this machine.
    """


def _node_options(command: Any) -> Any:
    """Add the options that all `nodes` commands share."""
    kubeconfig = click.option("--kubeconfig", type=FILE, help="Kubeconfig file of the development cluster.")
    return kubeconfig(click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(command))


def _node_selection_options(command: Any) -> Any:
    """Add NAME, --selector and --all, which the command receives as one argument."""

    @functools.wraps(command)
    def called(names: tuple[str, ...], selector: str, all_nodes: bool, **options: Any) -> int:
        from kubeloop.cli.nodes import NodeSelection

        result: int = command(selection=NodeSelection(names, selector, all_nodes), **options)
        return result

    all_nodes = click.option("--all", "all_nodes", is_flag=True, help="Select all nodes.")
    selector = click.option("-l", "--selector", default="", help="Label selector of the nodes.")
    return click.argument("names", nargs=-1, metavar="[NAME]...")(selector(all_nodes(_node_options(called))))


@nodes.command("list")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("-l", "--selector", default="", help="Label selector of the nodes.")
@_node_options
def nodes_list(names: tuple[str, ...], selector: str, **options: Any) -> int:
    """List nodes with status, failure mode and pods."""
    from kubeloop.cli.nodes import NodeSelection, show

    return show(NodeSelection(names, selector, False), **options)


@nodes.command("add")
@with_options(NewNodes)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@_node_options
def nodes_add(new: NewNodes, names: tuple[str, ...], **options: Any) -> int:
    """Create simulated nodes and wait until they are ready."""
    from kubeloop.cli.nodes import add

    return add(names, new, **options)


@nodes.command("remove")
@_node_selection_options
def nodes_remove(**options: Any) -> int:
    """Delete nodes.

    Their pods are deleted 40 s later; controllers replace them.
    """
    from kubeloop.cli.nodes import remove

    return remove(**options)


@nodes.command("cordon")
@_node_selection_options
def nodes_cordon(**options: Any) -> int:
    """Mark nodes as unschedulable."""
    from kubeloop.cli.nodes import cordon

    return cordon(unschedulable=True, **options)


@nodes.command("uncordon")
@_node_selection_options
def nodes_uncordon(**options: Any) -> int:
    """Mark nodes as schedulable."""
    from kubeloop.cli.nodes import cordon

    return cordon(unschedulable=False, **options)


@nodes.command("fail")
@click.option(
    "--mode",
    type=click.Choice(
        ["unreachable", "not-ready", "memory-pressure", "disk-pressure", "pid-pressure", "network-unavailable"]
    ),
    default="unreachable",
    show_default=True,
    help="Failure mode. unreachable: no contact with the node; not-ready: the kubelet cannot start pods.",
)
@_node_selection_options
def nodes_fail(**options: Any) -> int:
    """Simulate failures of nodes."""
    from kubeloop.cli.nodes import fail

    return fail(**options)


@nodes.command("recover")
@_node_selection_options
def nodes_recover(**options: Any) -> int:
    """End simulated failures of nodes."""
    from kubeloop.cli.nodes import fail

    return fail(mode="", **options)


@commands.command()
def version() -> None:
    """Print the versions of kubeloop and Kubernetes."""
    click.echo(f"kubeloop {__version__} (follows Kubernetes {KUBERNETES_VERSION})")
