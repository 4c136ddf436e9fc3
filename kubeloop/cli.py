"""The command line: options and their checks. What a command does is in a module of its own, imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kubeloop import KUBERNETES_VERSION, __version__

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
@click.option("--child", is_flag=True, hidden=True, help="Announce readiness as JSON; end when stdin closes.")
@click.option(
    "--faults",
    default="",
    help="Misbehave now and then, e.g. 'error=0.02,throttle=0.01,conflict=0.01,"
    "silence=0.005,lost-answer=0.01,drop-watch=0.05,seed=1' (chances per request).",
)
def apiserver(**options: Any) -> int:
    """Run the development cluster alone: API server and simulated nodes, no controllers."""
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
    """Run controllers and scheduler against an existing API server."""
    from kubeloop.run import run as start

    return start(**options)


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


@commands.command()
def version() -> None:
    """Print the version, and the Kubernetes release whose behaviour it follows."""
    click.echo(f"kubeloop {__version__} (Kubernetes {KUBERNETES_VERSION})")
