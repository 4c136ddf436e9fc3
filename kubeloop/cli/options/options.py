"""Options of the commands. Each option is declared once, as a field; commands receive objects of these classes.

class PortOptions(msgspec.Struct, frozen=True):
    port: Annotated[int, option("Port to listen on.", type=click.IntRange(0, 65535))] = 0

@click.command()
@with_options(PortOptions)
def serve(ports: PortOptions) -> int: ...
"""

# no `from __future__ import annotations`: the declarations are read from the annotations

import functools
import math
from collections.abc import Callable
from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click
import msgspec

from kubeloop.kube.user_error import UserError
from kubeloop.kube.values.durations import duration_seconds, duration_text
from kubeloop.process.control_plane.controller_table import CONTROLLERS, ControllerOption, controller_options
from kubeloop.process.control_plane.service_range import parse_service_range

if TYPE_CHECKING:
    from kubeloop.kube.feature_gates import FeatureGates

LogFormat = Literal["text", "json"]
FILE = click.Path(dir_okay=False, path_type=Path)
OUTPUT = click.Path(path_type=Path)
PORT = click.IntRange(0, 65535)


class Option(msgspec.Struct, frozen=True):
    """Declaration of an option. names: on the command line, default --field-name. parameters: of click.Option."""

    help: str
    names: tuple[str, ...]
    parameters: dict[str, Any]
    option_class: type[click.Option] = click.Option


def option(help: str, *names: str, **parameters: Any) -> Option:  # click's name
    """Return the declaration of an option, for the annotation of its field."""
    return Option(help, names, parameters)


def with_options(*groups: type[msgspec.Struct]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options of these classes to a command. It is called with an object of each class, then with its other
    arguments by name."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def called(**arguments: Any) -> Any:
            objects = [group(**{name: arguments.pop(name) for name in group.__struct_fields__}) for group in groups]
            return command(*objects, **arguments)

        declared = [parameter for group in groups for parameter in _click_options(group)]
        called.__click_params__ = [*declared, *getattr(command, "__click_params__", [])][::-1]  # type: ignore[attr-defined]
        return called

    return decorate


def arguments_of(options: msgspec.Struct) -> list[str]:
    """Return the command line that sets these options."""
    arguments = []
    for parameter in _click_options(type(options)):
        assert parameter.name is not None
        value = getattr(options, parameter.name)
        if parameter.secondary_opts:
            arguments.append(parameter.opts[0] if value else parameter.secondary_opts[0])
        elif parameter.multiple:
            values = value or ([""] if parameter.default else [])
            arguments += [f"{parameter.opts[-1]}={item}" for item in values]
        elif value is not None:
            arguments.append(f"{parameter.opts[-1]}={value}")
    return arguments


def _click_options(group: type[msgspec.Struct]) -> list[click.Option]:
    fields, defaults = group.__struct_fields__, group.__struct_defaults__
    annotations = {
        name: type_ for base in group.__mro__[::-1] for name, type_ in vars(base).get("__annotations__", {}).items()
    }
    click_options = []
    for name, default in zip(fields, defaults, strict=True):
        (declared,) = annotations[name].__metadata__
        names = declared.names or (f"--{name.replace('_', '-')}",)
        single_flag = declared.parameters.get("is_flag", False)
        click_options.append(
            declared.option_class(
                [*names, name],
                default=default,
                show_default=not single_flag and default not in (None, "", ()),
                help=declared.help,
                **declared.parameters,
            )
        )
    return click_options


class _FeatureGatesOption(click.Option):
    """Lists the gates in its help, which is built only when it is printed."""

    def get_help_record(self, context: click.Context) -> tuple[str, str] | None:
        from kubeloop.kube.feature_gates import known_features

        gates = "\n".join(known_features())
        self.help = f"{self.help} Options are:\n\n\b\n{gates}"
        return super().get_help_record(context)


class FeatureGateOptions(msgspec.Struct, frozen=True):
    """Feature gates of a process, as texts "NAME=true,NAME=false"."""

    feature_gates: Annotated[
        tuple[str, ...],
        Option(
            "Comma-separated list of NAME=true|false pairs that set feature gates. May be repeated.",
            ("--feature-gates",),
            {"multiple": True, "metavar": "NAME=BOOL,..."},
            _FeatureGatesOption,
        ),
    ] = ()

    def parsed(self) -> "FeatureGates":
        """Return the gates. Raises UserError."""
        from kubeloop.kube.feature_gates import FeatureGates

        return FeatureGates.parse(self.feature_gates)


class ClusterGateOptions(FeatureGateOptions, frozen=True):
    """Feature gates of a development cluster."""

    gang_scheduling: Annotated[
        bool,
        option(
            "Enable gang scheduling: the kinds Workload and PodGroup, and all feature gates for them"
            " (docs/feature-gates.md). --feature-gates takes precedence.",
            "--gang-scheduling/--no-gang-scheduling",
        ),
    ] = False

    def parsed(self) -> "FeatureGates":
        from kubeloop.kube.feature_gates import FeatureGates, gang_scheduling_text

        texts = (gang_scheduling_text(),) if self.gang_scheduling else ()
        return FeatureGates.parse((*texts, *self.feature_gates))


_LogFormat = Annotated[
    LogFormat,
    option(
        "Format of log records, with trace and span ids in either.",
        type=click.Choice(["text", "json"]),
    ),
]
_Verbosity = Annotated[
    Literal["error", "warning", "info", "debug"],
    option(
        "Minimum severity of log records, which go to stderr.",
        "-v",
        "--verbosity",
        type=click.Choice(["error", "warning", "info", "debug"]),
    ),
]
_BindAddress = Annotated[str, option("Address of the endpoint with /healthz and /metrics.")]
_EndpointPort = Annotated[int, option("Port of the endpoint; 0 selects a free port.", type=PORT)]
_Kubeconfig = Annotated[
    Path | None,
    option("Kubeconfig file (default: $KUBECONFIG, ~/.kube/config, or the pod's service account).", type=FILE),
]
_KubeContext = Annotated[str | None, option("Context of the kubeconfig (default: its current one).", "--context")]
_TraceUntil = Annotated[
    Literal["bound", "ready"],
    option("State of a pod at which its trace ends.", type=click.Choice(["bound", "ready"])),
]
_TraceTailSampling = Annotated[
    str,
    option(
        "Rules for traces to export although OTEL_TRACES_SAMPLER rejected them: slower-than=2s,failed,preempted.",
        metavar="RULES",
    ),
]
_TraceJournal = Annotated[
    str | None,
    option(
        "Folder of the journal that preserves traces over a crash (default: the runtime directory; '': none).",
        metavar="DIR",
    ),
]


def duration(least: float, *, or_more: bool = True) -> dict[str, Any]:
    """Return the parameters of an option that takes seconds (90) or a duration in Kubernetes' format (1m30s).

    least: minimum in seconds; or_more: the minimum itself is allowed.
    """

    def seconds_of(value: str | float) -> float:
        seconds = _seconds(value) if isinstance(value, str) else value
        if seconds is None or not math.isfinite(seconds):
            raise click.BadParameter(f"{value!r} is not a duration, such as 15, 15s or 1m30s")
        if seconds < least or (seconds == least and not or_more):
            raise click.BadParameter(f"{value} is not {'at least' if or_more else 'more than'} {duration_text(least)}")
        return seconds

    return {"type": seconds_of, "metavar": "DURATION"}


def _seconds(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return duration_seconds(text)


def _service_range(text: str | IPv4Network) -> IPv4Network:
    """Raises click.BadParameter."""
    try:
        return parse_service_range(str(text))
    except UserError as error:
        raise click.BadParameter(f"{error}; use {error.hint}") from None


class DevClusterOptions(msgspec.Struct, frozen=True):
    """Options of the development cluster."""

    nodes: Annotated[int, option("Number of simulated nodes.", type=click.IntRange(0, 20_000))] = 5
    node_cpu: Annotated[str, option("CPU capacity per node (quantity).")] = "8"
    node_memory: Annotated[str, option("Memory capacity per node (quantity).")] = "32Gi"
    node_pods: Annotated[int, option("Maximum number of pods per node.", type=click.IntRange(1))] = 110
    zones: Annotated[int, option("Number of zones of the nodes.", type=click.IntRange(1))] = 3
    start_delay: Annotated[
        float, option("Mean time from the binding of a pod to its running containers.", **duration(0))
    ] = 0.05
    start_spread: Annotated[float, option("Maximum deviation from --start-delay.", **duration(0))] = 0.05
    stop_delay: Annotated[
        float,
        option("Time that containers take to stop after the deletion of their pod.", **duration(0)),
    ] = 1.0
    job_duration: Annotated[
        float, option("Time after which the containers of a Job's pod exit with 0.", **duration(0))
    ] = 1.0
    probe_delays: Annotated[
        bool,
        option(
            "Delay started and ready containers by the initialDelaySeconds of their probes.",
            "--probe-delays/--no-probe-delays",
        ),
    ] = True
    complete_bare_pods: Annotated[
        bool,
        option(
            "Complete pods without a controller after --job-duration, too, unless they have restartPolicy Always.",
            "--complete-bare-pods/--no-complete-bare-pods",
        ),
    ] = False
    command_exits: Annotated[
        bool,
        option(
            "End containers as their command says: 'exit 1', '/bin/false', 'sleep 5', alone or in 'sh -c'.",
            "--command-exits/--no-command-exits",
        ),
    ] = True
    missing_images: Annotated[
        tuple[str, ...],
        option(
            "Images that cannot be pulled: a pattern with '*' and '?', such as 'registry.example.com/*'. May be"
            " repeated; '' for none.",
            multiple=True,
            metavar="PATTERN",
        ),
    ] = ("*:404", "*:non-existent", "*:nonexistent", "*:does-not-exist", "*:doesnotexist")
    stages: Annotated[
        tuple[Path, ...],
        option(
            "File of KWOK stages, and of answers to logs, exec, attach and port-forward. May be repeated.",
            multiple=True,
            type=FILE,
        ),
    ] = ()
    devices: Annotated[
        Path | None, option("File of the devices that nodes publish as ResourceSlices (docs/devices.md).", type=FILE)
    ] = None
    service_cluster_ip_range: Annotated[
        IPv4Network | None,
        option("Address range of Services (default: 10.0.0.0/24).", type=_service_range, metavar="RANGE"),
    ] = None
    disable_admission_plugins: Annotated[
        tuple[str, ...],
        option(
            "Comma-separated list of admission plugins that do not run, such as ServiceAccount. May be repeated.",
            multiple=True,
            metavar="NAMES",
        ),
    ] = ()
    port: Annotated[int, option("Port of the API server; 0 selects a free port.", type=PORT)] = 0
    kubeconfig: Annotated[
        Path | None, option("File to write the kubeconfig to (default: a new file per run).", type=FILE)
    ] = None
    data_dir: Annotated[
        Path | None,
        option(
            "Folder that persists the cluster's objects over restarts (default: memory only).",
            type=click.Path(file_okay=False, path_type=Path),
        ),
    ] = None


def _token(text: str) -> str:
    """Raises click.BadParameter."""
    if not (text.isascii() and text.isprintable()):
        raise click.BadParameter("a token must be one line of printable ASCII, since it is sent in a header")
    return text


class ServeOptions(msgspec.Struct, frozen=True):
    """Options of `kubeloop apiserver` only. supervised: print a Ready message on stdout; end when stdin ends."""

    token: Annotated[
        str | None,
        option(
            "Bearer token of the administrator (default: random).",
            type=_token,
            metavar="TOKEN",
            envvar="KUBELOOP_TOKEN",
        ),
    ] = None
    compaction_interval: Annotated[
        float,
        option("Time that old resource versions stay available to watches and lists.", **duration(0.1)),
    ] = 300.0
    node_monitor_grace_period: Annotated[
        float,
        option(
            "Grace period of the node lifecycle controller. Simulated kubelets renew their Leases every fifth of it,"
            " and at least every 10 s.",
            **duration(0),
        ),
    ] = 50.0
    log_format: _LogFormat = "text"
    supervised: Annotated[bool, option("", is_flag=True, hidden=True)] = False
    faults: Annotated[
        str,
        option(
            "Faults to inject, with their probability per request, e.g. 'error=0.02,throttle=0.01,conflict=0.01,"
            "silence=0.005,lost-answer=0.01,drop-watch=0.05,seed=1'."
        ),
    ] = ""


class ProcessOptions(msgspec.Struct, frozen=True):
    """Options of the process that runs controllers and scheduler."""

    config: Annotated[
        Path | None,
        option("File with a KubeSchedulerConfiguration (v1) or a legacy Policy.", type=FILE),
    ] = None
    algorithm_provider: Annotated[
        str | None,
        option(
            "Built-in scheduler configuration instead of --config: DefaultProvider, or ClusterAutoscalerProvider, "
            "which prefers the most allocated nodes.",
            metavar="NAME",
        ),
    ] = None
    policy_config_file: Annotated[
        Path | None,
        option("File with a legacy Policy, applied to every profile of --config.", type=FILE),
    ] = None
    tie_break: Annotated[
        str | None,
        option(
            "Choice among the nodes with the highest score, instead of that of the configuration.",
            type=click.Choice(["random", "roundRobin"]),
        ),
    ] = None
    bind_address: _BindAddress = "127.0.0.1"
    endpoint_port: _EndpointPort = 0
    verbosity: _Verbosity = "warning"
    log_format: _LogFormat = "text"
    trace_until: _TraceUntil = "bound"
    trace_annotate: Annotated[
        bool,
        option(
            "Annotate the workloads of -f, the ReplicaSets of Deployments and the Jobs of CronJobs with the trace"
            " context of the request or reconcile that writes them (tracing.k8s.io/traceparent), so that reconciles"
            " in other processes link to it. Pods are always annotated.",
            is_flag=True,
        ),
    ] = False
    trace_tail_sampling: _TraceTailSampling = ""

    @property
    def configures_scheduler(self) -> bool:
        """True if options change the scheduler's default configuration."""
        options = (self.config, self.algorithm_provider, self.policy_config_file, self.tie_break)
        return any(option is not None for option in options)


_PARAMETERS: dict[str, dict[str, Any]] = {
    "count": {"type": click.IntRange(1)},
    "integer": {"type": int},
    "number": {"type": float},
    "duration": duration(0),
    "text": {"type": str},
}


def _parameters(row: ControllerOption) -> dict[str, Any]:
    return _PARAMETERS[row.kind] if row.maximum is None else {"type": click.IntRange(1, row.maximum)}


ControllerOptions = msgspec.defstruct(
    "ControllerOptions",
    [(row.key, Annotated[Any, option(row.help, **_parameters(row))], row.default) for row in controller_options()],
    frozen=True,
    namespace={"__doc__": "Options of the controllers, from their table."},
)


class UpOptions(msgspec.Struct, frozen=True):
    """Manifests of `kubeloop up`."""

    files: Annotated[
        tuple[Path, ...],
        option(
            "Manifest to apply: a file, a folder, or - for stdin. May be repeated.",
            "-f",
            "--filename",
            multiple=True,
            type=click.Path(path_type=Path, allow_dash=True),
        ),
    ] = ()


class DisplayOptions(msgspec.Struct, frozen=True):
    """Output of `kubeloop up`, and when it ends."""

    once: Annotated[
        bool,
        option(
            "Exit when all workloads are complete or suspended (code 0); at the first failed Job, Deployment or Pod"
            " without a controller, or at the --timeout (code 1).",
            is_flag=True,
        ),
    ] = False
    timeout: Annotated[float, option("Time to wait for complete workloads.", **duration(0, or_more=False))] = 120.0
    as_json: Annotated[bool, option("Print only one JSON document on stdout.", "--json", is_flag=True)] = False


class ServerOptions(msgspec.Struct, frozen=True):
    """API server and controllers of `kubeloop run`."""

    kubeconfig: _Kubeconfig = None
    kube_context: _KubeContext = None
    controllers: Annotated[
        str,
        option(
            f"Comma-separated list of controllers to run: {', '.join(CONTROLLERS)}; '*' for all,"
            " '-name' to exclude one."
        ),
    ] = "deployment,replicaset,scheduler"


class RunOptions(msgspec.Struct, frozen=True):
    """Further options of `kubeloop run`. kube_api_qps: requests per second, negative for no limit."""

    trace_journal: _TraceJournal = None
    scheduler_name: Annotated[
        str | None, option("Value of spec.schedulerName to schedule, instead of default-scheduler.")
    ] = None
    policy_configmap: Annotated[
        str | None,
        option(
            "ConfigMap with a legacy Policy under the key policy.cfg, instead of --policy-config-file.", metavar="NAME"
        ),
    ] = None
    policy_configmap_namespace: Annotated[str, option("Namespace of --policy-configmap.", metavar="NAMESPACE")] = (
        "kube-system"
    )
    write_config_to: Annotated[
        Path | None, option("File to write the scheduler's complete configuration to, then exit.", type=FILE)
    ] = None
    force: Annotated[
        bool, option("Run next to a live kube-scheduler or kube-controller-manager that does the same.", is_flag=True)
    ] = False
    kube_api_qps: Annotated[
        float, option("Requests per second to the API server; negative for no limit.", type=float)
    ] = -1.0
    kube_api_burst: Annotated[int, option("Burst of requests above --kube-api-qps.", type=click.IntRange(1))] = 100


class ElectionOptions(msgspec.Struct, frozen=True):
    """Leader election of replicas. Durations are seconds."""

    leader_elect: Annotated[
        bool,
        option(
            "Run controllers and scheduler only while this replica is the leader.", "--leader-elect/--no-leader-elect"
        ),
    ] = False
    leader_elect_resource_namespace: Annotated[str, option("Namespace of the Lease.")] = "kube-system"
    leader_elect_resource_name: Annotated[str, option("Name of the Lease.")] = "kubeloop"
    leader_elect_lease_duration: Annotated[
        float, option("Time after the last renewal when another replica may take over.", **duration(1))
    ] = 15.0
    leader_elect_renew_deadline: Annotated[
        float, option("Time to retry a renewal before the leader stops.", **duration(1))
    ] = 10.0
    leader_elect_retry_period: Annotated[
        float, option("Time between attempts to acquire or renew.", **duration(0.1))
    ] = 2.0


class ObserveOptions(msgspec.Struct, frozen=True):
    """Cluster, pods and output of `kubeloop observe`."""

    kubeconfig: _Kubeconfig = None
    kube_context: _KubeContext = None
    namespace: Annotated[str, option("Namespace to observe (default: all).", "-n", "--namespace")] = ""
    all_namespaces: Annotated[
        bool, option("Observe all namespaces, which is the default.", "-A", "--all-namespaces", is_flag=True)
    ] = False
    selector: Annotated[str, option("Label selector of the pods to observe.", "-l", "--selector")] = ""
    trace_until: _TraceUntil = "ready"
    trace_tail_sampling: _TraceTailSampling = ""
    trace_journal: _TraceJournal = None
    bind_address: _BindAddress = "127.0.0.1"
    endpoint_port: _EndpointPort = 0
    verbosity: _Verbosity = "warning"
    log_format: _LogFormat = "text"


class ObserveElectionOptions(ElectionOptions, frozen=True):
    """Leader election of the replicas of `kubeloop observe`, on a Lease of their own."""

    leader_elect: Annotated[
        bool,
        option(
            "Export traces only while this replica is the leader. Writes a Lease, and nothing else.",
            "--leader-elect/--no-leader-elect",
        ),
    ] = False
    leader_elect_resource_name: Annotated[str, option("Name of the Lease.")] = "kubeloop-observe"


class TraceOptions(msgspec.Struct, frozen=True):
    """Selection and output of `kubeloop trace`."""

    namespace: Annotated[
        str | None,
        option(
            "Namespace (default: 'default', or the only one that has NAME; without NAME, all).", "-n", "--namespace"
        ),
    ] = None
    watch: Annotated[
        bool,
        option(
            "Update the output until the trace is complete or Ctrl-C; in a pipe, print changes.",
            "-w",
            "--watch",
            is_flag=True,
        ),
    ] = False
    as_json: Annotated[bool, option("Print a JSON document (with --watch, one per line).", "--json", is_flag=True)] = (
        False
    )
    html: Annotated[Path | None, option("File to write a self-contained web page to.", type=OUTPUT)] = None
    perfetto: Annotated[
        Path | None, option("File to write Chrome trace events to, for ui.perfetto.dev.", type=OUTPUT)
    ] = None
    otlp: Annotated[Path | None, option("File to write OTLP JSON to, for other tools and for --from.", type=OUTPUT)] = (
        None
    )
    source: Annotated[
        Path | None,
        option(
            "File of OTLP JSON to read traces from, instead of a kubeloop process; - for stdin.",
            "--from",
            type=click.Path(path_type=Path, allow_dash=True),
        ),
    ] = None
    endpoint: Annotated[
        str | None,
        option("URL of the endpoint to query (default: of the newest kubeloop process on this machine)."),
    ] = None


class ExplainOptions(msgspec.Struct, frozen=True):
    """Source and output of `kubeloop explain`."""

    namespace: Annotated[
        str | None, option("Namespace (default: 'default', or the only one that has NAME).", "-n", "--namespace")
    ] = None
    as_json: Annotated[bool, option("Print the explanation as a JSON document.", "--json", is_flag=True)] = False
    endpoint: Annotated[
        str | None,
        option("URL of the endpoint to query (default: of the newest kubeloop process on this machine)."),
    ] = None
    kubeconfig: Annotated[
        Path | None,
        option("Kubeconfig file of the cluster to read, instead of querying a kubeloop process.", type=FILE),
    ] = None
    kube_context: _KubeContext = None
    config: Annotated[
        Path | None,
        option(
            "File with the KubeSchedulerConfiguration of the cluster to read (default: kube-scheduler's defaults).",
            type=FILE,
        ),
    ] = None


class NewNodes(msgspec.Struct, frozen=True):
    """The nodes of `kubeloop nodes add`, as the user wrote them."""

    count: Annotated[int, option("Number of nodes, unless named.", type=click.IntRange(1, 20_000))] = 1
    name_prefix: Annotated[str, option("Prefix of the names, before a number.")] = "node-"
    cpu: Annotated[str, option("CPU capacity per node (quantity).")] = "8"
    memory: Annotated[str, option("Memory capacity per node (quantity).")] = "32Gi"
    pods: Annotated[int, option("Maximum number of pods per node.", type=click.IntRange(1))] = 110
    zone: Annotated[str, option("Zone of the nodes (default: the one with the fewest nodes).")] = ""
    labels: Annotated[
        tuple[str, ...], option("Additional labels. May be repeated.", multiple=True, metavar="KEY=VALUE,...")
    ] = ()
    taints: Annotated[
        tuple[str, ...],
        option("Taint of the nodes. May be repeated.", "--taint", multiple=True, metavar="KEY[=VALUE]:EFFECT"),
    ] = ()
