"""The command line: options and their checks. What a command does is in a module of its own, imported when it runs."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from click.core import ParameterSource

from kubeloop import KUBERNETES_VERSION, __version__
from kubeloop.cli.options import (
    FILE,
    DevClusterOptions,
    ElectionOptions,
    ProcessOptions,
    RunOptions,
    ServeOptions,
    ServerOptions,
    ShowOptions,
    UpOptions,
    taking,
)
from kubeloop.process.python_gc import importing

_OUTPUT = click.Path(path_type=Path)
_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(context_settings=_CONTEXT, no_args_is_help=True)
def commands() -> None:
    """Kubernetes controllers and scheduler in one process, with a development cluster and a trace for every pod."""


@commands.command()
@taking(UpOptions, DevClusterOptions, ProcessOptions, ShowOptions)
def up(files: UpOptions, cluster: DevClusterOptions, process: ProcessOptions, shown: ShowOptions) -> int:
    """Start a development cluster with all controllers, apply manifests, and show their pods come up."""
    with importing():
        from kubeloop.cli.up import up as start

    return start(files.files, cluster, process, shown)


@commands.command()
@taking(DevClusterOptions, ServeOptions)
def apiserver(cluster: DevClusterOptions, serving: ServeOptions) -> int:
    """Run the development cluster alone: API server and simulated nodes, no controllers."""
    with importing():
        from kubeloop.cli.apiserver import serve

    return serve(cluster, serving)


@commands.command()
@taking(ServerOptions, ProcessOptions, RunOptions, ElectionOptions)
def run(server: ServerOptions, process: ProcessOptions, more: RunOptions, election: ElectionOptions) -> int:
    """Run controllers and scheduler against an existing API server.

    What --config says under clientConnection and leaderElection counts, unless an option says otherwise.
    """
    with importing():
        from kubeloop.cli.run import run as start
        from kubeloop.cli.scheduler_options import options_said_by

    context = click.get_current_context()
    said = {
        name: value
        for name, value in options_said_by(process.config, algorithm_provider=process.algorithm_provider).items()
        if context.get_parameter_source(name) is ParameterSource.DEFAULT
    }
    return start(_changed(server, said), process, _changed(more, said), _changed(election, said))


T = TypeVar("T", bound=msgspec.Struct)


def _changed(options: T, values: Mapping[str, Any]) -> T:
    """These options, but for those among `values` that are theirs."""
    own = {name: value for name, value in values.items() if name in options.__struct_fields__}
    return msgspec.structs.replace(options, **own) if own else options


@commands.command()
@click.argument("target", required=False, metavar="[deploy/NAME | pod/NAME]")
@click.option(
    "-n",
    "--namespace",
    help="Default: 'default', or the only namespace that has the name; without a name, all of them.",
)
@click.option("-w", "--watch", is_flag=True, help="Draw it anew as it changes; in a pipe, print what is new.")
@click.option("--json", "as_json", is_flag=True, help="Print it as a JSON document (with --watch, one a line).")
@click.option("--html", type=_OUTPUT, help="Write a page for browsers, with everything in one file.")
@click.option("--perfetto", type=_OUTPUT, help="Write Chrome trace events, for ui.perfetto.dev.")
@click.option("--otlp", type=_OUTPUT, help="Write OTLP as JSON, for other tools and for --from.")
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Read OTLP JSON, ours or another tool's, instead of asking a process; - for stdin.",
)
@click.option("--endpoint", help="URL of the kubeloop process to ask (default: the newest one on this machine).")
def trace(**options: Any) -> int:
    """Show where the time of a pod, of a rollout, or of all pods went."""
    from kubeloop.cli.trace import show

    return show(**options)


@commands.command()
@click.argument("target", metavar="pod/NAME")
@click.option("-n", "--namespace", default="default", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the explanation as a JSON document.")
@click.option("--endpoint", help="URL of the kubeloop process to ask (default: the newest one on this machine).")
def explain(**options: Any) -> int:
    """Say why a pod is pending: per node and plugin, what would help, and whether preemption could."""
    from kubeloop.cli.explain import show

    return show(**options)


@commands.group(no_args_is_help=True)
def nodes() -> None:
    """Add simulated nodes to a development cluster, take them out, let them fail and recover.

    The cluster is that of --kubeconfig, of $KUBECONFIG, or of the newest `kubeloop up` on this machine.
    """


def _node_options(command: Any) -> Any:
    """Options that all commands of `nodes` share."""
    kubeconfig = click.option("--kubeconfig", type=FILE, help="Of the development cluster.")
    return kubeconfig(click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(command))


def _choosing_nodes(command: Any) -> Any:
    """Names, --selector and --all, handed on as one argument."""

    @functools.wraps(command)
    def choosing(names: tuple[str, ...], selector: str, everyone: bool, **options: Any) -> int:
        from kubeloop.cli.nodes import Chosen

        result: int = command(chosen=Chosen(names, selector, everyone), **options)
        return result

    everyone = click.option("--all", "everyone", is_flag=True, help="All nodes.")
    selector = click.option("-l", "--selector", default="", help="Nodes with these labels.")
    return click.argument("names", nargs=-1, metavar="[NAME]...")(selector(everyone(_node_options(choosing))))


@nodes.command("list")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("-l", "--selector", default="", help="Nodes with these labels.")
@_node_options
def nodes_list(names: tuple[str, ...], selector: str, **options: Any) -> int:
    """Show nodes: their status, how they fail, and what is on them."""
    from kubeloop.cli.nodes import Chosen, show

    return show(Chosen(names, selector, False), **options)


@nodes.command("add")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--count", type=click.IntRange(1, 20_000), default=1, show_default=True, help="How many, if not by name.")
@click.option("--name-prefix", default="node-", show_default=True, help="Their names, but for a number.")
@click.option("--cpu", default="8", show_default=True, help="CPU of each (quantity).")
@click.option("--memory", default="32Gi", show_default=True, help="Memory of each (quantity).")
@click.option("--pods", type=click.IntRange(1), default=110, show_default=True, help="Pods each may run.")
@click.option("--zone", default="", help="Zone they are in (default: the one with the fewest nodes).")
@click.option("--labels", multiple=True, metavar="KEY=VALUE,...", help="More labels. May be given more than once.")
@click.option("--taint", "taints", multiple=True, metavar="KEY[=VALUE]:EFFECT", help="May be given more than once.")
@_node_options
def nodes_add(
    names: tuple[str, ...],
    count: int,
    name_prefix: str,
    cpu: str,
    memory: str,
    pods: int,
    zone: str,
    labels: tuple[str, ...],
    taints: tuple[str, ...],
    **options: Any,
) -> int:
    """Create simulated nodes, and wait until they are ready."""
    from kubeloop.cli.nodes import NewNodes, add

    return add(NewNodes(names, count, name_prefix, cpu, memory, pods, zone, labels, taints), **options)


@nodes.command("remove")
@_choosing_nodes
def nodes_remove(**options: Any) -> int:
    """Delete nodes. Their pods are removed 40 s later, and replaced if somebody wants them."""
    from kubeloop.cli.nodes import remove

    return remove(**options)


@nodes.command("cordon")
@_choosing_nodes
def nodes_cordon(**options: Any) -> int:
    """Have no new pods scheduled to nodes."""
    from kubeloop.cli.nodes import cordon

    return cordon(unschedulable=True, **options)


@nodes.command("uncordon")
@_choosing_nodes
def nodes_uncordon(**options: Any) -> int:
    """Have new pods scheduled to nodes again."""
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
    help="unreachable: nothing is heard of it; not-ready: its kubelet says that it cannot start pods.",
)
@_choosing_nodes
def nodes_fail(**options: Any) -> int:
    """Let nodes fail until they are told to recover."""
    from kubeloop.cli.nodes import fail

    return fail(**options)


@nodes.command("recover")
@_choosing_nodes
def nodes_recover(**options: Any) -> int:
    """End the failure of nodes."""
    from kubeloop.cli.nodes import fail

    return fail(mode="", **options)


@commands.command()
def version() -> None:
    """Print the version, and the Kubernetes release whose behaviour it follows."""
    click.echo(f"kubeloop {__version__} (Kubernetes {KUBERNETES_VERSION})")
