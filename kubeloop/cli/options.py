"""What the commands can be told: each option is declared once, as a field, and commands get objects with all of them.

class PortOptions(msgspec.Struct, frozen=True):
    port: Annotated[int, option("0: a free one.", type=click.IntRange(0, 65535))] = 0

@click.command()
@taking(PortOptions)
def serve(ports: PortOptions) -> int: ...
"""

# no `from __future__ import annotations`: the declarations are read from the annotations

import functools
import math
from collections.abc import Callable
from ipaddress import IPv4Network
from pathlib import Path
from typing import Annotated, Any, Literal

import click
import msgspec

from kubeloop.kube.durations import duration_seconds, duration_text

LogFormat = Literal["text", "json"]
FILE = click.Path(dir_okay=False, path_type=Path)
PORT = click.IntRange(0, 65535)


class Option(msgspec.Struct, frozen=True):
    """names: as on the command line, if not --field-name. parameters: others of click.Option."""

    help: str
    names: tuple[str, ...]
    parameters: dict[str, Any]


def option(help: str, *names: str, **parameters: Any) -> Option:  # click's name
    """The declaration of an option, for the annotation of its field."""
    return Option(help, names, parameters)


def taking(*groups: type[msgspec.Struct]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options of these classes; it is called with an object of each, then with its other arguments
    by name."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def called(**given: Any) -> Any:
            objects = [group(**{name: given.pop(name) for name in group.__struct_fields__}) for group in groups]
            return command(*objects, **given)

        declared = [each for group in groups for each in _click_options(group)]
        called.__click_params__ = [*declared, *getattr(command, "__click_params__", [])][::-1]  # type: ignore[attr-defined]
        return called

    return decorate


def arguments_of(options: msgspec.Struct) -> list[str]:
    """The command line that gives these options again."""
    arguments = []
    for parameter in _click_options(type(options)):
        assert parameter.name is not None
        value = getattr(options, parameter.name)
        if parameter.secondary_opts:
            arguments.append(parameter.opts[0] if value else parameter.secondary_opts[0])
        elif parameter.multiple:
            arguments += [f"{parameter.opts[-1]}={each}" for each in value]
        elif value is not None:
            arguments.append(f"{parameter.opts[-1]}={value}")
    return arguments


def _click_options(group: type[msgspec.Struct]) -> list[click.Option]:
    fields, defaults = group.__struct_fields__, group.__struct_defaults__
    click_options = []
    for name, default in zip(fields, defaults, strict=True):
        (declared,) = group.__annotations__[name].__metadata__
        names = declared.names or (f"--{name.replace('_', '-')}",)
        single_flag = declared.parameters.get("is_flag", False)
        click_options.append(
            click.Option(
                [*names, name],
                default=default,
                show_default=not single_flag and default not in (None, "", ()),
                help=declared.help,
                **declared.parameters,
            )
        )
    return click_options


LogFormatOption = Annotated[
    LogFormat,
    option(
        "Log records as lines of text, or of JSON; both with the ids of the trace they belong to.",
        type=click.Choice(["text", "json"]),
    ),
]


def duration(least: float, *, or_more: bool = True) -> dict[str, Any]:
    """Parameters of an option that takes seconds (90), or a duration as Kubernetes' flags do (1m30s); or_more: `least`
    seconds are allowed, too."""

    def seconds_of(given: str | float) -> float:
        seconds = _seconds(given) if isinstance(given, str) else given
        if seconds is None or not math.isfinite(seconds):
            raise click.BadParameter(f"{given!r} is no duration; say 15, 15s or 1m30s")
        if seconds < least or (seconds == least and not or_more):
            raise click.BadParameter(f"{given} is not {'at least' if or_more else 'more than'} {duration_text(least)}")
        return seconds

    return {"type": seconds_of, "metavar": "DURATION"}


def _seconds(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return duration_seconds(text)


_WIDEST, _NARROWEST = 8, 29


def _service_range(text: str | IPv4Network) -> IPv4Network:
    """Raises click.BadParameter."""
    try:
        network = IPv4Network(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}; say a range of IPv4 addresses, as 10.0.0.0/16") from None
    if not _WIDEST <= network.prefixlen <= _NARROWEST:
        raise click.BadParameter(f"{network}: the length of its prefix must be {_WIDEST} to {_NARROWEST}")
    return network


class DevClusterOptions(msgspec.Struct, frozen=True):
    """The development cluster: its nodes, and where it is."""

    nodes: Annotated[int, option("Simulated nodes.", type=click.IntRange(0, 20_000))] = 5
    node_cpu: Annotated[str, option("CPU of each node (quantity).")] = "8"
    node_memory: Annotated[str, option("Memory of each node (quantity).")] = "32Gi"
    node_pods: Annotated[int, option("Pods per node.", type=click.IntRange(1))] = 110
    zones: Annotated[int, option("Zones the nodes are in.", type=click.IntRange(1))] = 3
    start_delay: Annotated[float, option("Time from binding to a running container.", **duration(0))] = 0.05
    start_spread: Annotated[float, option("By how much the start delay varies.", **duration(0))] = 0.05
    probe_delays: Annotated[
        bool,
        option(
            "Let containers take the time their probes' initialDelaySeconds allow them.",
            "--probe-delays/--no-probe-delays",
        ),
    ] = False
    stages: Annotated[
        tuple[Path, ...],
        option(
            "File of KWOK stages that decide on pods or nodes. May be given more than once.", multiple=True, type=FILE
        ),
    ] = ()
    node_monitor_grace_period: Annotated[
        float, option("Time without a sign of life after which a node is Unknown.", **duration(0.5))
    ] = 50.0
    service_cluster_ip_range: Annotated[
        IPv4Network | None,
        option("Where Services get their addresses (default: 10.0.0.0/24).", type=_service_range, metavar="RANGE"),
    ] = None
    port: Annotated[int, option("0: a free port.", type=PORT)] = 0
    kubeconfig: Annotated[
        Path | None, option("Where to write the kubeconfig (default: a file of its own for each run).", type=FILE)
    ] = None
    data_dir: Annotated[
        Path | None,
        option(
            "Keep the cluster's objects in this folder, over restarts (default: in memory only).",
            type=click.Path(file_okay=False, path_type=Path),
        ),
    ] = None


def _token(text: str) -> str:
    """Raises click.BadParameter."""
    if not (text.isascii() and text.isprintable()):
        raise click.BadParameter("a token is one line of printable ASCII: it is sent in a header")
    return text


class ServeOptions(msgspec.Struct, frozen=True):
    """`kubeloop apiserver` alone. child: announce readiness as JSON on stdout, and end when stdin does."""

    token: Annotated[
        str | None,
        option("Bearer token (default: a random one).", type=_token, metavar="TOKEN", envvar="KUBELOOP_TOKEN"),
    ] = None
    compaction_interval: Annotated[
        float,
        option("How long older versions are kept for watches and lists.", **duration(0.1)),
    ] = 300.0
    log_format: LogFormatOption = "text"
    supervised: Annotated[bool, option("", is_flag=True, hidden=True)] = False
    faults: Annotated[
        str,
        option(
            "Misbehave now and then, e.g. 'error=0.02,throttle=0.01,conflict=0.01,"
            "silence=0.005,lost-answer=0.01,drop-watch=0.05,seed=1' (chances per request)."
        ),
    ] = ""


class ProcessOptions(msgspec.Struct, frozen=True):
    """The process that runs controllers and scheduler."""

    config: Annotated[
        Path | None,
        option("KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1), or a Policy of old.", type=FILE),
    ] = None
    algorithm_provider: Annotated[
        str | None,
        option(
            "DefaultProvider, or ClusterAutoscalerProvider, which fills nodes up. Instead of --config.", metavar="NAME"
        ),
    ] = None
    concurrent_deployment_syncs: Annotated[int, option("Deployments reconciled at once.", type=click.IntRange(1))] = 5
    concurrent_replicaset_syncs: Annotated[int, option("ReplicaSets reconciled at once.", type=click.IntRange(1))] = 5
    concurrent_rc_syncs: Annotated[
        int, option("ReplicationControllers reconciled at once.", type=click.IntRange(1))
    ] = 5
    bind_address: Annotated[str, option("Where /healthz, /metrics listen.")] = "127.0.0.1"
    endpoint_port: Annotated[
        int, option("Port of /healthz /livez /readyz /metrics /configz; 0: a free one.", type=PORT)
    ] = 0
    verbosity: Annotated[
        Literal["error", "warning", "info", "debug"],
        option(
            "Least severe log records to print on stderr.",
            "-v",
            "--verbosity",
            type=click.Choice(["error", "warning", "info", "debug"]),
        ),
    ] = "warning"
    log_format: LogFormatOption = "text"
    trace_until: Annotated[
        Literal["bound", "ready"], option("How far the trace of a pod goes.", type=click.Choice(["bound", "ready"]))
    ] = "bound"
    trace_keep: Annotated[
        str,
        option(
            "Traces to keep though OTEL_TRACES_SAMPLER did not choose them: slower-than=2s,failed,preempted.",
            metavar="RULES",
        ),
    ] = ""


class UpOptions(msgspec.Struct, frozen=True):
    """What `kubeloop up` applies."""

    files: Annotated[
        tuple[Path, ...],
        option(
            "Manifest to apply: a file, a folder, or - for stdin. May be given more than once.",
            "-f",
            "--filename",
            multiple=True,
            type=click.Path(path_type=Path, allow_dash=True),
        ),
    ] = ()


class ShowOptions(msgspec.Struct, frozen=True):
    """What `kubeloop up` shows, and when it ends."""

    once: Annotated[
        bool, option("End when every Deployment is complete (0), or at the time-out (1).", is_flag=True)
    ] = False
    timeout: Annotated[float, option("How long to wait for that.", **duration(0, or_more=False))] = 120.0
    as_json: Annotated[
        bool, option("Print one JSON document on stdout, and nothing else there.", "--json", is_flag=True)
    ] = False


class ServerOptions(msgspec.Struct, frozen=True):
    """Which API server `kubeloop run` works on, and which controllers do."""

    kubeconfig: Annotated[
        Path | None,
        option("Default: $KUBECONFIG, ~/.kube/config, or the service account in a pod, in this order.", type=FILE),
    ] = None
    kube_context: Annotated[
        str | None, option("Context of the kubeconfig (default: its current one).", "--context")
    ] = None
    controllers: Annotated[
        str,
        option(
            "Of deployment, replicaset, replicationcontroller, garbagecollector, namespace, resourcequota, scheduler,"
            " those to run, separated by commas; '*' for all, '-name' to leave one out."
        ),
    ] = "deployment,replicaset,scheduler"


class RunOptions(msgspec.Struct, frozen=True):
    """What else `kubeloop run` can be told. kube_api_qps: requests a second, negative for no limit."""

    trace_journal: Annotated[
        str | None,
        option(
            "Where traces survive a crash, for the next process (default: the runtime directory; '' for nowhere).",
            metavar="DIR",
        ),
    ] = None
    scheduler_name: Annotated[
        str | None, option("Serve the pods with this spec.schedulerName instead of default-scheduler.")
    ] = None
    write_config_to: Annotated[
        Path | None, option("Write the scheduler's complete configuration to this file and exit.", type=FILE)
    ] = None
    kube_api_qps: Annotated[float, option("Requests per second; negative: no limit.", type=float)] = -1.0
    kube_api_burst: Annotated[int, option("Requests at once before that limit counts.", type=click.IntRange(1))] = 100


class ElectionOptions(msgspec.Struct, frozen=True):
    """Whether and how replicas elect one that acts. Durations are seconds."""

    leader_elect: Annotated[bool, option("Be one of several replicas.", "--leader-elect/--no-leader-elect")] = False
    leader_elect_resource_namespace: Annotated[str, option("Where the Lease is.")] = "kube-system"
    leader_elect_resource_name: Annotated[str, option("Name of the Lease.")] = "kubeloop"
    leader_elect_lease_duration: Annotated[float, option("How long others wait for a sign of life.", **duration(1))] = (
        15.0
    )
    leader_elect_renew_deadline: Annotated[
        float, option("How long the leader tries to renew before it stops.", **duration(1))
    ] = 10.0
    leader_elect_retry_period: Annotated[float, option("Time between tries.", **duration(0.1))] = 2.0
