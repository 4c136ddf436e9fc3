"""The command line: options and their checks. What a command does is in a module of its own, imported when it runs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from kubeloop import KUBERNETES_VERSION, __version__
from kubeloop.garbage import importing

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(context_settings=_CONTEXT, no_args_is_help=True)
def commands() -> None:
    """Kubernetes controllers and scheduler in one process, with a development cluster and a trace for every pod."""


def _cluster_options(command: Any) -> Any:
    """Options of the simulated nodes, shared by `up` and `apiserver`."""
    for option in reversed(
        (
            click.option(
                "--nodes", type=click.IntRange(0, 20_000), default=5, show_default=True, help="Simulated nodes."
            ),
            click.option("--node-cpu", default="8", show_default=True, help="CPU of each node (quantity)."),
            click.option("--node-memory", default="32Gi", show_default=True, help="Memory of each node (quantity)."),
            click.option("--node-pods", type=click.IntRange(1), default=110, show_default=True, help="Pods per node."),
            click.option(
                "--zones", type=click.IntRange(1), default=3, show_default=True, help="Zones the nodes are in."
            ),
            click.option(
                "--start-delay",
                type=click.FloatRange(0),
                default=0.05,
                show_default=True,
                help="Seconds from binding to a running container.",
            ),
            click.option(
                "--start-spread",
                type=click.FloatRange(0),
                default=0.05,
                show_default=True,
                help="Seconds by which the start delay varies.",
            ),
            click.option(
                "--probe-delays/--no-probe-delays",
                default=False,
                show_default=True,
                help="Let containers take the time their probes' initialDelaySeconds allow them.",
            ),
            click.option(
                "--stages",
                multiple=True,
                type=click.Path(dir_okay=False, path_type=Path),
                help="File of KWOK stages that decide on pods or nodes. May be given more than once.",
            ),
            click.option(
                "--node-monitor-grace-period",
                type=click.FloatRange(0.5),
                default=50.0,
                show_default=True,
                help="Seconds without a sign of life after which a node is Unknown.",
            ),
            click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="0: a free port."),
            click.option(
                "--kubeconfig",
                type=click.Path(dir_okay=False, path_type=Path),
                help="Where to write the kubeconfig (default: a file of its own for each run).",
            ),
            click.option(
                "--data-dir",
                type=click.Path(file_okay=False, path_type=Path),
                help="Keep the cluster's objects in this folder, over restarts (default: in memory only).",
            ),
        )
    ):
        command = option(command)
    return command


def _log_format_option() -> Callable[[Any], Any]:
    return click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Log records as lines of text, or of JSON; both with the ids of the trace they belong to.",
    )


def _process_options(command: Any) -> Any:
    """Options of the process that runs controllers and scheduler, shared by `up` and `run`."""
    for option in reversed(
        (
            click.option(
                "--config",
                type=click.Path(dir_okay=False, path_type=Path),
                help="KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1), or a Policy of old.",
            ),
            click.option(
                "--algorithm-provider",
                metavar="NAME",
                help="DefaultProvider, or ClusterAutoscalerProvider, which fills nodes up. Instead of --config.",
            ),
            click.option("--concurrent-deployment-syncs", type=click.IntRange(1), default=5, show_default=True),
            click.option("--concurrent-replicaset-syncs", type=click.IntRange(1), default=5, show_default=True),
            click.option("--concurrent-rc-syncs", type=click.IntRange(1), default=5, show_default=True),
            click.option(
                "--bind-address", default="127.0.0.1", show_default=True, help="Where /healthz, /metrics listen."
            ),
            click.option(
                "--endpoint-port",
                type=click.IntRange(0, 65535),
                default=0,
                show_default=True,
                help="Port of /healthz /livez /readyz /metrics /configz; 0: a free one.",
            ),
            click.option(
                "-v",
                "--verbosity",
                type=click.Choice(["error", "warning", "info", "debug"]),
                default="warning",
                show_default=True,
                help="Least severe log records to print on stderr.",
            ),
            _log_format_option(),
            click.option(
                "--trace-until",
                type=click.Choice(["bound", "ready"]),
                default="bound",
                show_default=True,
                help="How far the trace of a pod goes.",
            ),
            click.option(
                "--trace-keep",
                metavar="RULES",
                default="",
                help="Traces to keep though OTEL_TRACES_SAMPLER did not choose them: slower-than=2s,failed,preempted.",
            ),
        )
    ):
        command = option(command)
    return command


@commands.command()
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    type=click.Path(path_type=Path, allow_dash=True),
    help="Manifest to apply: a file, a folder, or - for stdin. May be given more than once.",
)
@_cluster_options
@_process_options
@click.option("--once", is_flag=True, help="End when every Deployment is complete (0), or at the time-out (1).")
@click.option("--timeout", type=click.FloatRange(0, min_open=True), default=120.0, show_default=True, help="Seconds.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout, and nothing else there.")
def up(**options: Any) -> int:
    """Start a development cluster with all controllers, apply manifests, and show their pods come up."""
    with importing():
        from kubeloop.up import up as start

    return start(**options)


@commands.command()
@_cluster_options
@click.option("--token", help="Bearer token (default: a random one).", envvar="KUBELOOP_TOKEN")
@click.option(
    "--compaction-interval",
    type=click.FloatRange(0.1),
    default=300.0,
    show_default=True,
    help="Seconds for which older versions are kept for watches and lists.",
)
@_log_format_option()
@click.option("--child", is_flag=True, hidden=True, help="Announce readiness as JSON; end when stdin closes.")
@click.option(
    "--faults",
    default="",
    help="Misbehave now and then, e.g. 'error=0.02,throttle=0.01,conflict=0.01,"
    "silence=0.005,lost-answer=0.01,drop-watch=0.05,seed=1' (chances per request).",
)
def apiserver(**options: Any) -> int:
    """Run the development cluster alone: API server and simulated nodes, no controllers."""
    with importing():
        from kubeloop.development_cluster import serve

    return serve(**options)


@commands.command()
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Default: $KUBECONFIG, the service account in a pod, or ~/.kube/config, in this order.",
)
@click.option("--context", "kube_context", help="Context of the kubeconfig (default: its current one).")
@click.option(
    "--controllers",
    default="deployment,replicaset,scheduler",
    show_default=True,
    help="Comma-separated; '*' for all, '-name' to leave one out.",
)
@_process_options
@click.option(
    "--trace-journal",
    metavar="DIR",
    help="Where traces survive a crash, for the next process (default: the runtime directory; '' for nowhere).",
)
@click.option("--scheduler-name", help="Serve the pods with this spec.schedulerName instead of default-scheduler.")
@click.option(
    "--write-config-to",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the scheduler's complete configuration to this file and exit.",
)
@click.option(
    "--kube-api-qps", type=float, default=-1.0, show_default=True, help="Requests per second; negative: no limit."
)
@click.option("--kube-api-burst", type=click.IntRange(1), default=100, show_default=True)
@click.option("--leader-elect/--no-leader-elect", default=False, show_default=True, help="Be one of several replicas.")
@click.option("--leader-elect-resource-namespace", default="kube-system", show_default=True)
@click.option("--leader-elect-resource-name", default="kubeloop", show_default=True)
@click.option(
    "--leader-elect-lease-duration", type=click.FloatRange(1), default=15.0, show_default=True, help="Seconds."
)
@click.option(
    "--leader-elect-renew-deadline", type=click.FloatRange(1), default=10.0, show_default=True, help="Seconds."
)
@click.option(
    "--leader-elect-retry-period", type=click.FloatRange(0.1), default=2.0, show_default=True, help="Seconds."
)
def run(**options: Any) -> int:
    """Run controllers and scheduler against an existing API server.

    What --config says under clientConnection and leaderElection counts, unless an option says otherwise.
    """
    with importing():
        from kubeloop.run import run as start
        from kubeloop.scheduler_options import options_said_by

    context = click.get_current_context()
    said = {name for name in options if context.get_parameter_source(name) is not ParameterSource.DEFAULT}
    of_file = options_said_by(options["config"], algorithm_provider=options["algorithm_provider"])
    return start(**(options | {name: value for name, value in of_file.items() if name not in said}))


@commands.command()
@click.argument("target", required=False, metavar="[deploy/NAME | pod/NAME]")
@click.option(
    "-n",
    "--namespace",
    help="Default: 'default', or the only namespace that has the name; without a name, all of them.",
)
@click.option("-w", "--watch", is_flag=True, help="Draw it anew as it changes; in a pipe, print what is new.")
@click.option("--json", "as_json", is_flag=True, help="Print it as a JSON document (with --watch, one a line).")
@click.option("--html", type=click.Path(path_type=Path), help="Write a page for browsers, with everything in one file.")
@click.option("--perfetto", type=click.Path(path_type=Path), help="Write Chrome trace events, for ui.perfetto.dev.")
@click.option("--otlp", type=click.Path(path_type=Path), help="Write OTLP as JSON, for other tools and for --from.")
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Read OTLP JSON, ours or another tool's, instead of asking a process; - for stdin.",
)
@click.option("--endpoint", help="URL of the kubeloop process to ask (default: the newest one on this machine).")
def trace(**options: Any) -> int:
    """Show where the time of a pod, of a rollout, or of all pods went."""
    from kubeloop.trace import show

    return show(**options)


@commands.command()
@click.argument("target", metavar="pod/NAME")
@click.option("-n", "--namespace", default="default", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the explanation as a JSON document.")
@click.option("--endpoint", help="URL of the kubeloop process to ask (default: the newest one on this machine).")
def explain(**options: Any) -> int:
    """Say why a pod is pending: per node and plugin, what would help, and whether preemption could."""
    from kubeloop.explain import show

    return show(**options)


@commands.group(no_args_is_help=True)
def nodes() -> None:
    """Add simulated nodes to a development cluster, take them out, let them fail and recover.

    The cluster is that of --kubeconfig, of $KUBECONFIG, or of the newest `kubeloop up` on this machine.
    """


def _node_options(command: Any) -> Any:
    """Options that all commands of `nodes` share."""
    kubeconfig = click.option(
        "--kubeconfig", type=click.Path(dir_okay=False, path_type=Path), help="Of the development cluster."
    )
    return kubeconfig(click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(command))


def _choosing_nodes(command: Any) -> Any:
    """Names, --selector and --all, handed on as one argument."""

    @functools.wraps(command)
    def choosing(names: tuple[str, ...], selector: str, everyone: bool, **options: Any) -> int:
        from kubeloop.nodes import Chosen

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
    from kubeloop.nodes import Chosen, show

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
    from kubeloop.nodes import NewNodes, add

    return add(NewNodes(names, count, name_prefix, cpu, memory, pods, zone, labels, taints), **options)


@nodes.command("remove")
@_choosing_nodes
def nodes_remove(**options: Any) -> int:
    """Delete nodes. Their pods are removed 40 s later, and replaced if somebody wants them."""
    from kubeloop.nodes import remove

    return remove(**options)


@nodes.command("cordon")
@_choosing_nodes
def nodes_cordon(**options: Any) -> int:
    """Have no new pods scheduled to nodes."""
    from kubeloop.nodes import cordon

    return cordon(unschedulable=True, **options)


@nodes.command("uncordon")
@_choosing_nodes
def nodes_uncordon(**options: Any) -> int:
    """Have new pods scheduled to nodes again."""
    from kubeloop.nodes import cordon

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
    from kubeloop.nodes import fail

    return fail(**options)


@nodes.command("recover")
@_choosing_nodes
def nodes_recover(**options: Any) -> int:
    """End the failure of nodes."""
    from kubeloop.nodes import fail

    return fail(mode="", **options)


@commands.command()
def version() -> None:
    """Print the version, and the Kubernetes release whose behaviour it follows."""
    click.echo(f"kubeloop {__version__} (Kubernetes {KUBERNETES_VERSION})")
