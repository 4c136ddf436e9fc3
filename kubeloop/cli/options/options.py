"""Options of the commands. Each option is declared once, as a field; commands receive objects of these classes.

class PortOptions(CommandOptions, group="Process"):
    port: int = option("Port to listen on.", default=0, type=click.IntRange(0, 65535), common=False)

@click.command(cls=HelpCommand)
@with_options(PortOptions)
def serve(ports: PortOptions) -> int: ...
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, dataclass_transform

import click
import msgspec

from kubeloop.kube.user_error import UserError
from kubeloop.kube.values.durations import duration_seconds, duration_text
from kubeloop.process.control_plane.controller_table import CONTROLLERS, ControllerOption, controller_options
from kubeloop.process.python_gc import importing

if TYPE_CHECKING:
    from kubeloop.kube.feature_gates import FeatureGates, Part

LogFormat = Literal["text", "json"]
Verbosity = Literal["error", "warning", "info", "debug"]
TraceUntil = Literal["bound", "ready"]
FILE = click.Path(dir_okay=False, path_type=Path)
OUTPUT = click.Path(path_type=Path)
PORT = click.IntRange(0, 65535)


Completer = Callable[[click.Context, click.Parameter, str], Any]
"""Returns the completions of a value on the command line; see `shell_complete` of click."""


def completer(names: str) -> Completer:
    """Return the function of kubeloop.cli.completion.names with this name, which is imported when it is called."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> Any:
        with importing():
            from kubeloop.cli.completion import names as module

        return getattr(module, names)(context, parameter, incomplete)

    return complete


class GroupedOption(click.Option):
    """An option in the help. group: its heading. common: --help shows it, too; --help-all shows all."""

    group = "Options"
    common = True

    def make_metavar(self, ctx: click.Context) -> str:
        return super().make_metavar(ctx).removesuffix(" RANGE")  # the range follows the help

    def details(self) -> str:
        """Return the text that --help-all adds to the help of the option, computed only then."""
        return ""


class Option(msgspec.Struct, frozen=True):
    """Declaration of an option.

    names: on the command line, default --field-name. group: heading in the help, default that of the class. common:
    --help shows the option, too; --help-all shows all. parameters: of click.Option.
    """

    help: str
    names: tuple[str, ...]
    default: Any
    group: str
    common: bool
    parameters: dict[str, Any]
    option_class: type[GroupedOption]


def option(
    help: str,  # click's name
    *names: str,
    default: Any,
    group: str = "",
    common: bool = True,
    option_class: type[GroupedOption] = GroupedOption,
    **parameters: Any,
) -> Any:
    """Return the declaration of an option, as the value of its field."""
    return Option(help, names, default, group, common, parameters, option_class)


def duration(
    help: str, *, default: float, least: float = 0.0, or_more: bool = True, group: str = "", common: bool = True
) -> Any:
    """Return the declaration of an option that takes seconds (90) or a duration in Kubernetes' format (1m30s).

    least: minimum in seconds; or_more: the minimum itself is allowed.
    """

    def seconds_of(value: str | float) -> float:
        seconds = _seconds(value) if isinstance(value, str) else value
        if seconds is None or not math.isfinite(seconds):
            raise click.BadParameter(f"{value!r} is not a duration, such as 15, 15s or 1m30s")
        if seconds < least or (seconds == least and not or_more):
            raise click.BadParameter(f"{value} is not {'at least' if or_more else 'more than'} {duration_text(least)}")
        return seconds

    return option(help, default=default, group=group, common=common, type=seconds_of, metavar="DURATION")


def _seconds(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return duration_seconds(text)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(option, duration))
class CommandOptions:
    """Values of the options that a subclass declares. group: heading of the help for those that declare none."""

    group: ClassVar[str] = GroupedOption.group

    def __init_subclass__(cls, group: str = "") -> None:
        cls.group = group or cls.group

    def __init__(self, **values: Any) -> None:
        declared = self.declared()
        if unknown := values.keys() - declared.keys():
            raise TypeError(f"{type(self).__name__} has no option {', '.join(sorted(unknown))}")
        vars(self).update({name: option.default for name, option in declared.items()} | values)

    @classmethod
    @functools.cache
    def declared(cls) -> dict[str, Option]:
        """Return the options by field, those of base classes first."""
        bases = (vars(base).items() for base in cls.__mro__[::-1])
        return {name: value for fields in bases for name, value in fields if isinstance(value, Option)}

    def replace(self, **values: Any) -> Self:
        """Return a copy with other values."""
        return type(self)(**vars(self) | values)


def with_options(*groups: type[CommandOptions]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options of these classes to a HelpCommand, before its other parameters. It is called with an object of
    each class, then with its other arguments by name."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def called(**arguments: Any) -> Any:
            objects = [group(**{name: arguments.pop(name) for name in group.declared()}) for group in groups]
            return command(*objects, **arguments)

        called.option_groups = groups  # type: ignore[attr-defined]
        return called

    return decorate


def declared_options(command: Any) -> list[GroupedOption]:
    """Return new options of the classes that with_options() has added."""
    return [parameter for group in getattr(command, "option_groups", ()) for parameter in _click_options(group)]


def arguments_of(options: CommandOptions) -> list[str]:
    """Return the command line that sets these options."""
    arguments = []
    for parameter in _click_options(type(options)):
        assert parameter.name is not None
        value = getattr(options, parameter.name)
        if parameter.secondary_opts:
            arguments.append(parameter.opts[0] if value else parameter.secondary_opts[0])
        elif parameter.is_flag:
            arguments += parameter.opts[-1:] if value else []
        elif parameter.multiple:
            values = value or ([""] if parameter.default else [])
            arguments += [f"{parameter.opts[-1]}={item}" for item in values]
        elif value is not None:
            arguments.append(f"{parameter.opts[-1]}={value}")
    return arguments


def _click_options(group: type[CommandOptions]) -> list[GroupedOption]:
    click_options = []
    for name, declared in group.declared().items():
        names = declared.names or (f"--{name.replace('_', '-')}",)
        single_flag = declared.parameters.get("is_flag", False)
        click_option = declared.option_class(
            [*names, name],
            default=declared.default,
            show_default=not single_flag and declared.default not in (None, "", ()),
            help=declared.help,
            **declared.parameters,
        )
        click_option.group, click_option.common = declared.group or group.group, declared.common
        click_options.append(click_option)
    return click_options


class _FeatureGatesOption(GroupedOption):
    """Lists the gates that the parts of a command obey."""

    def __init__(self, *arguments: Any, parts: Sequence[Part], **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self._parts = parts

    def details(self) -> str:
        from kubeloop.kube.feature_gates import known_features

        return "\n\n\b\n" + "\n".join(known_features(self._parts))


def _feature_gates(*parts: Part) -> Any:
    return option(
        "Comma-separated list of NAME=true|false pairs that set feature gates. May be repeated.",
        default=(),
        common=False,
        option_class=_FeatureGatesOption,
        multiple=True,
        metavar="NAME=BOOL,...",
        parts=parts,
    )


class FeatureGateOptions(CommandOptions, group="Feature gates"):
    """Feature gates of a process, as texts "NAME=true,NAME=false"."""

    feature_gates: tuple[str, ...] = _feature_gates("controllers", "scheduler")

    def parsed(self) -> FeatureGates:
        """Return the feature gates. Raises UserError."""
        return self._parsed(*self.feature_gates)

    def _parsed(self, *texts: str) -> FeatureGates:
        from kubeloop.kube.feature_gates import FeatureGates

        try:
            return FeatureGates.parse(texts)
        except UserError as error:
            raise UserError(f"--feature-gates: {error}", hint=error.hint) from None


class ExplainGateOptions(FeatureGateOptions):
    """Feature gates of the scheduler."""

    feature_gates: tuple[str, ...] = _feature_gates("scheduler")


class ClusterGateOptions(FeatureGateOptions):
    """Feature gates of a development cluster."""

    feature_gates: tuple[str, ...] = _feature_gates("apiserver", "controllers", "scheduler")
    gang_scheduling: bool = option(
        "Enable gang scheduling: the kinds Workload and PodGroup, and all feature gates for them"
        " (docs/feature-gates.md). --feature-gates takes precedence.",
        "--gang-scheduling/--no-gang-scheduling",
        default=False,
        common=False,
    )

    def parsed(self) -> FeatureGates:
        from kubeloop.kube.feature_gates import gang_scheduling_text

        texts = (gang_scheduling_text(),) if self.gang_scheduling else ()
        return self._parsed(*texts, *self.feature_gates)


class ServerGateOptions(ClusterGateOptions):
    """Feature gates of the development API server."""

    feature_gates: tuple[str, ...] = _feature_gates("apiserver")


LOG_FORMAT = option(
    "Format of log records, with trace and span ids in either.",
    default="text",
    type=click.Choice(["text", "json"]),
    group="Process",
    common=False,
)
VERBOSITY = option(
    "Minimum severity of logs on stderr: error, warning, info, debug.",
    "-v",
    "--verbosity",
    default="warning",
    type=click.Choice(["error", "warning", "info", "debug"]),
    metavar="LEVEL",
    group="Process",
)
_BIND_ADDRESS = option(
    "Address of the endpoint with /healthz and /metrics.", default="127.0.0.1", group="Process", common=False
)
_ENDPOINT_PORT = option(
    "Port of the endpoint; 0 selects a free port.", default=0, type=PORT, group="Process", common=False
)
KUBECONFIG = option(
    "Kubeconfig file (default: $KUBECONFIG, ~/.kube/config, or the pod's service account).",
    default=None,
    type=FILE,
    group="Cluster",
)
KUBE_CONTEXT = option(
    "Context of the kubeconfig (default: its current one).",
    "--context",
    default=None,
    group="Cluster",
    shell_complete=completer("contexts"),
)
_TRACE_TAIL_SAMPLING = option(
    "Rules for traces to export although OTEL_TRACES_SAMPLER rejected them: slower-than=2s,failed,preempted.",
    default="",
    metavar="RULES",
    group="Traces",
    common=False,
)
_TRACE_JOURNAL = option(
    "Folder of the journal that preserves traces over a crash (default: the runtime directory; '': none).",
    default=None,
    metavar="DIR",
    group="Traces",
    common=False,
)


def _trace_until(default: str) -> Any:
    return option(
        "State of a pod at which its trace ends.",
        default=default,
        type=click.Choice(["bound", "ready"]),
        group="Traces",
    )


class DevClusterOptions(CommandOptions, group="Nodes and pods"):
    """Options of the development cluster."""

    nodes: int = option("Number of simulated nodes.", default=5, type=click.IntRange(0, 100_000))
    node_cpu: str = option("CPU capacity per node (quantity).", default="8")
    node_memory: str = option("Memory capacity per node (quantity).", default="32Gi")
    node_pods: int = option("Maximum number of pods per node.", default=110, type=click.IntRange(1), common=False)
    zones: int = option("Number of zones of the nodes.", default=3, type=click.IntRange(1), common=False)
    start_delay: float = duration("Mean time from a pod's binding to running containers.", default=0.05)
    start_spread: float = duration("Maximum deviation from --start-delay.", default=0.05, common=False)
    stop_delay: float = duration(
        "Time that containers take to stop after the deletion of their pod.", default=1.0, common=False
    )
    job_duration: float = duration("Time after which containers of Jobs exit with 0.", default=1.0)
    probe_delays: bool = option(
        "Delay started and ready containers by the initialDelaySeconds of their probes.",
        "--probe-delays/--no-probe-delays",
        default=True,
        common=False,
    )
    complete_bare_pods: bool = option(
        "Complete pods without a controller after --job-duration, too, unless they have restartPolicy Always.",
        "--complete-bare-pods/--no-complete-bare-pods",
        default=False,
        common=False,
    )
    command_exits: bool = option(
        "End containers as their command says: 'exit 1', '/bin/false', 'sleep 5', alone or in 'sh -c'.",
        "--command-exits/--no-command-exits",
        default=True,
        common=False,
    )
    missing_images: tuple[str, ...] = option(
        "Images that cannot be pulled: a pattern with '*' and '?', such as 'registry.example.com/*'. May be"
        " repeated; '' for none.",
        default=("*:404", "*:non-existent", "*:nonexistent", "*:does-not-exist", "*:doesnotexist"),
        multiple=True,
        metavar="PATTERN",
        common=False,
    )
    stages: tuple[Path, ...] = option(
        "File of KWOK stages and of answers to exec, logs. May be repeated.",
        default=(),
        multiple=True,
        type=FILE,
    )
    devices: Path | None = option(
        "File of the devices that nodes publish as ResourceSlices (docs/devices.md).",
        default=None,
        type=FILE,
        common=False,
    )
    service_cluster_ip_range: str = option(
        "Address range of Services.", default="10.0.0.0/24", metavar="RANGE", group="API server", common=False
    )
    admission_control_config_file: Path | None = option(
        "File with an AdmissionConfiguration: the configuration of admission plugins.",
        default=None,
        type=FILE,
        group="API server",
        common=False,
    )
    enable_admission_plugins: tuple[str, ...] = option(
        "Comma-separated list of admission plugins that run in addition to those that run by default and"
        " NodeRestriction, such as AlwaysPullImages. May be repeated.",
        default=(),
        multiple=True,
        metavar="NAMES",
        group="API server",
        common=False,
    )
    disable_admission_plugins: tuple[str, ...] = option(
        "Comma-separated list of admission plugins that do not run, such as ServiceAccount. May be repeated.",
        default=(),
        multiple=True,
        metavar="NAMES",
        group="API server",
        common=False,
    )
    authorization_mode: str = option(
        "Comma-separated list of authorizers in their order: Node, RBAC, AlwaysAllow, AlwaysDeny.",
        default="Node,RBAC",
        metavar="MODES",
        group="Authentication and audit",
        common=False,
    )
    audit_policy_file: Path | None = option(
        "File of an audit policy; requests that it selects are logged to --audit-log-path.",
        default=None,
        type=FILE,
        group="Authentication and audit",
        common=False,
    )
    audit_log_path: Path | None = option(
        "File of the audit log; '-' for stdout, of `kubeloop apiserver` only.",
        default=None,
        type=FILE,
        group="Authentication and audit",
        common=False,
    )
    resolve: tuple[str, ...] = option(
        "Address at which webhooks and API servers behind a Service are reached, such as"
        " 'webhook.default.svc=127.0.0.1:9443'. May be repeated.",
        default=(),
        multiple=True,
        metavar="NAME.NAMESPACE.svc=HOST:PORT",
        group="API server",
        common=False,
    )
    token_auth_file: Path | None = option(
        "CSV file of bearer tokens: token, user name, uid and, optionally, groups.",
        default=None,
        type=FILE,
        group="Authentication and audit",
        common=False,
    )
    enable_bootstrap_token_auth: bool = option(
        "Accept Secrets of type bootstrap.kubernetes.io/token in kube-system as bearer tokens.",
        default=False,
        is_flag=True,
        group="Authentication and audit",
        common=False,
    )
    requestheader_client_ca_file: Path | None = option(
        "File with the certificate authorities, in PEM, of front proxies, which name the user of a request in"
        " X-Remote-User (default: the cluster's own).",
        default=None,
        type=FILE,
        group="Authentication and audit",
        common=False,
    )
    requestheader_allowed_names: tuple[str, ...] = option(
        "Comma-separated list of the common names of front proxies; '' for all. May be repeated.",
        default=("front-proxy-client",),
        multiple=True,
        metavar="NAMES",
        group="Authentication and audit",
        common=False,
    )
    proxy_client_cert_file: Path | None = option(
        "File with the certificate, in PEM, by which aggregated API servers recognize the cluster as their front proxy"
        " (default: one of the cluster).",
        default=None,
        type=FILE,
        group="API server",
        common=False,
    )
    proxy_client_key_file: Path | None = option(
        "File with the key of --proxy-client-cert-file.", default=None, type=FILE, group="API server", common=False
    )
    client_ca_file: Path | None = option(
        "File with the certificate authorities, in PEM, whose client certificates the API server accepts (default:"
        " the cluster's own).",
        default=None,
        type=FILE,
        group="Authentication and audit",
        common=False,
    )
    port: int = option("Port of the API server; 0: a free one.", default=0, type=PORT, group="API server")
    kubeconfig: Path | None = option(
        "File to write the kubeconfig to (default: a new file per run).", default=None, type=FILE, group="API server"
    )
    data_dir: Path | None = option(
        "Folder that persists the objects over restarts (default: none).",
        default=None,
        type=click.Path(file_okay=False, path_type=Path),
        group="API server",
    )


def _token(text: str) -> str:
    """Raises click.BadParameter."""
    if not (text.isascii() and text.isprintable()):
        raise click.BadParameter("a token must be one line of printable ASCII, since it is sent in a header")
    return text


class ServeOptions(CommandOptions, group="API server"):
    """Options of `kubeloop apiserver` only. supervised: print a Ready message on stdout; end when stdin ends."""

    token: str | None = option(
        "Bearer token of the administrator (default: random).",
        default=None,
        type=_token,
        metavar="TOKEN",
        envvar="KUBELOOP_TOKEN",
    )
    compaction_interval: float = duration(
        "Time that old resource versions stay available to watches and lists.", default=300.0, least=0.1, common=False
    )
    node_monitor_grace_period: float = duration(
        "Grace period of the node lifecycle controller. Simulated kubelets renew their Leases every fifth of it,"
        " and at least every 10 s.",
        default=50.0,
        group="Nodes and pods",
        common=False,
    )
    log_format: LogFormat = LOG_FORMAT
    supervised: bool = option("", default=False, is_flag=True, hidden=True)
    faults: str = option(
        "Faults to inject, with their probability per request, e.g. 'error=0.02,throttle=0.01,conflict=0.01,"
        "silence=0.005,lost-answer=0.01,drop-watch=0.05,seed=1'.",
        default="",
    )


class ProcessOptions(CommandOptions, group="Process"):
    """Options of the process that runs controllers and scheduler."""

    config: Path | None = option(
        "File with a KubeSchedulerConfiguration (v1) or a legacy Policy.", default=None, type=FILE, group="Scheduler"
    )
    algorithm_provider: str | None = option(
        "Built-in scheduler configuration instead of --config: DefaultProvider, or ClusterAutoscalerProvider, "
        "which prefers the most allocated nodes.",
        default=None,
        metavar="NAME",
        group="Legacy scheduler configuration",
        common=False,
    )
    policy_config_file: Path | None = option(
        "File with a legacy Policy, applied to every profile of --config.",
        default=None,
        type=FILE,
        group="Legacy scheduler configuration",
        common=False,
    )
    tie_break: str | None = option(
        "Choice among the nodes with the highest score, instead of that of the configuration.",
        default=None,
        type=click.Choice(["random", "roundRobin"]),
        group="Scheduler",
        common=False,
    )
    bind_address: str = _BIND_ADDRESS
    endpoint_port: int = _ENDPOINT_PORT
    verbosity: Verbosity = VERBOSITY
    log_format: LogFormat = LOG_FORMAT
    trace_until: TraceUntil = _trace_until("bound")
    trace_annotate: bool = option(
        "Annotate the workloads of -f, the ReplicaSets of Deployments and the Jobs of CronJobs with the trace"
        " context of the request or reconcile that writes them (tracing.k8s.io/traceparent), so that reconciles"
        " in other processes link to it. Pods are always annotated.",
        default=False,
        is_flag=True,
        group="Traces",
        common=False,
    )
    trace_tail_sampling: str = _TRACE_TAIL_SAMPLING

    @property
    def configures_scheduler(self) -> bool:
        """True if options change the scheduler's default configuration."""
        options = (self.config, self.algorithm_provider, self.policy_config_file, self.tie_break)
        return any(option is not None for option in options)


_TYPES: dict[str, Any] = {"integer": int, "number": float, "text": str}


def _declared(row: ControllerOption) -> Any:
    if row.kind == "duration":
        return duration(row.help, default=float(row.default), common=False)
    type_ = click.IntRange(1, row.maximum) if row.kind == "count" else _TYPES[row.kind]
    return option(row.help, default=row.default, common=False, type=type_)


class ControllerOptions(CommandOptions, group="Controllers"):
    """Options of the controllers, from their table."""

    @classmethod
    @functools.cache
    def declared(cls) -> dict[str, Option]:
        return {row.key: _declared(row) for row in controller_options()}


class UpOptions(CommandOptions, group="Manifests"):
    """Manifests of `kubeloop up`."""

    files: tuple[Path, ...] = option(
        "Manifest to apply: file, folder, or - for stdin. May be repeated.",
        "-f",
        "--filename",
        default=(),
        multiple=True,
        type=click.Path(path_type=Path, allow_dash=True),
    )


class DisplayOptions(CommandOptions, group="Manifests"):
    """Output of `kubeloop up`, and when it ends."""

    once: bool = option(
        "Exit when all workloads are complete or suspended (code 0), or at the first failure or the --timeout (1).",
        default=False,
        is_flag=True,
    )
    timeout: float = duration("Time to wait for complete workloads.", default=120.0, or_more=False)
    as_json: bool = option("Print only one JSON document on stdout.", "--json", default=False, is_flag=True)


class _ControllersOption(GroupedOption):
    """Lists the controllers."""

    def details(self) -> str:
        return f"\n\nControllers: {', '.join(CONTROLLERS)}."


class ServerOptions(CommandOptions, group="Cluster"):
    """API server and controllers of `kubeloop run`."""

    kubeconfig: Path | None = KUBECONFIG
    kube_context: str | None = KUBE_CONTEXT
    controllers: str = option(
        "Comma-separated list of controllers to run; '*' for all, '-name' to exclude one, module:Class for others"
        " (--help-all lists them).",
        default="deployment,replicaset,scheduler",
        group="Controllers",
        option_class=_ControllersOption,
        metavar="NAMES",
    )


class RunOptions(CommandOptions, group="Cluster"):
    """Further options of `kubeloop run`. kube_api_qps: requests per second, negative for no limit."""

    trace_journal: str | None = _TRACE_JOURNAL
    scheduler_name: str | None = option(
        "Value of spec.schedulerName to schedule, instead of default-scheduler.", default=None, group="Scheduler"
    )
    policy_configmap: str | None = option(
        "ConfigMap with a legacy Policy under the key policy.cfg, instead of --policy-config-file.",
        default=None,
        metavar="NAME",
        group="Legacy scheduler configuration",
        common=False,
    )
    policy_configmap_namespace: str = option(
        "Namespace of --policy-configmap.",
        default="kube-system",
        metavar="NAMESPACE",
        group="Legacy scheduler configuration",
        common=False,
    )
    write_config_to: Path | None = option(
        "File to write the scheduler's complete configuration to, then exit.",
        default=None,
        type=FILE,
        group="Scheduler",
        common=False,
    )
    force: bool = option(
        "Run next to a live kube-scheduler or kube-controller-manager that does the same.", default=False, is_flag=True
    )
    kube_api_qps: float = option(
        "Requests per second to the API server; negative for no limit.", default=-1.0, type=float, common=False
    )
    kube_api_burst: int = option(
        "Burst of requests above --kube-api-qps.", default=100, type=click.IntRange(1), common=False
    )
    trace_requests: bool = option(
        "Send the header traceparent with the requests of traced pods and reconciles, for an API server that exports"
        " spans itself (--tracing-config-file of kube-apiserver).",
        default=False,
        is_flag=True,
        group="Traces",
        common=False,
    )


class ElectionOptions(CommandOptions, group="Leader election"):
    """Leader election of replicas. Durations are seconds."""

    leader_elect: bool = option(
        "Run controllers and scheduler only while this replica is the leader.",
        "--leader-elect/--no-leader-elect",
        default=False,
    )
    leader_elect_resource_namespace: str = option("Namespace of the Lease.", default="kube-system", common=False)
    leader_elect_resource_name: str = option("Name of the Lease.", default="kubeloop", common=False)
    leader_elect_lease_duration: float = duration(
        "Time after the last renewal when another replica may take over.", default=15.0, least=1, common=False
    )
    leader_elect_renew_deadline: float = duration(
        "Time to retry a renewal before the leader stops.", default=10.0, least=1, common=False
    )
    leader_elect_retry_period: float = duration(
        "Time between attempts to acquire or renew.", default=2.0, least=0.1, common=False
    )


class ObserveOptions(CommandOptions, group="Pods"):
    """Cluster, pods and output of `kubeloop observe`."""

    kubeconfig: Path | None = KUBECONFIG
    kube_context: str | None = KUBE_CONTEXT
    namespace: str = option(
        "Namespace to observe (default: all).", "-n", "--namespace", default="", shell_complete=completer("namespaces")
    )
    all_namespaces: bool = option(
        "Observe all namespaces, which is the default.",
        "-A",
        "--all-namespaces",
        default=False,
        is_flag=True,
        common=False,
    )
    selector: str = option("Label selector of the pods to observe.", "-l", "--selector", default="")
    trace_until: TraceUntil = _trace_until("ready")
    trace_tail_sampling: str = _TRACE_TAIL_SAMPLING
    trace_journal: str | None = _TRACE_JOURNAL
    bind_address: str = _BIND_ADDRESS
    endpoint_port: int = _ENDPOINT_PORT
    verbosity: Verbosity = VERBOSITY
    log_format: LogFormat = LOG_FORMAT


class ObserveElectionOptions(ElectionOptions):
    """Leader election of the replicas of `kubeloop observe`, on a Lease of their own."""

    leader_elect: bool = option(
        "Export traces only while this replica is the leader. Writes a Lease, and nothing else.",
        "--leader-elect/--no-leader-elect",
        default=False,
    )
    leader_elect_resource_name: str = option("Name of the Lease.", default="kubeloop-observe", common=False)


class TraceOptions(CommandOptions, group="Output"):
    """Selection and output of `kubeloop trace`."""

    namespace: str | None = option(
        "Namespace (default: 'default', or the only one that has NAME; without NAME, all).",
        "-n",
        "--namespace",
        default=None,
        shell_complete=completer("namespaces"),
        group="Source",
    )
    watch: bool = option(
        "Update the output until the trace is complete or Ctrl-C; in a pipe, print changes.",
        "-w",
        "--watch",
        default=False,
        is_flag=True,
    )
    as_json: bool = option("Print a JSON document (with --watch, one per line).", "--json", default=False, is_flag=True)
    html: Path | None = option("File to write a self-contained web page to.", default=None, type=OUTPUT)
    perfetto: Path | None = option(
        "File to write Chrome trace events to, for ui.perfetto.dev.", default=None, type=OUTPUT
    )
    otlp: Path | None = option("File to write OTLP JSON to, for other tools and for --from.", default=None, type=OUTPUT)
    source: Path | None = option(
        "File of OTLP JSON to read traces from, instead of a kubeloop process; - for stdin.",
        "--from",
        default=None,
        type=click.Path(path_type=Path, allow_dash=True),
        group="Source",
    )
    endpoint: str | None = option(
        "URL of the endpoint to query (default: of the newest kubeloop process on this machine).",
        default=None,
        group="Source",
    )


class TopOptions(CommandOptions, group="Source"):
    """Source of `kubeloop top`."""

    namespace: str = option(
        "Namespace of the pods (default: all).", "-n", "--namespace", default="", shell_complete=completer("namespaces")
    )
    endpoint: str | None = option(
        "URL of the endpoint to query (default: of the newest kubeloop process on this machine).", default=None
    )


class ExplainOptions(CommandOptions, group="Output"):
    """Source and output of `kubeloop explain`."""

    namespace: str | None = option(
        "Namespace (default: 'default', or the only one that has NAME).",
        "-n",
        "--namespace",
        default=None,
        shell_complete=completer("namespaces"),
        group="Cluster",
    )
    with_scores: bool = option(
        "Show why the pod is on its node, or where it would be: the scores of nodes by plugin.",
        "--scores",
        default=False,
        is_flag=True,
    )
    as_json: bool = option("Print the explanation as a JSON document.", "--json", default=False, is_flag=True)
    endpoint: str | None = option(
        "URL of the endpoint to query (default: of the newest kubeloop process on this machine).",
        default=None,
        group="Cluster",
    )
    kubeconfig: Path | None = option(
        "Kubeconfig file of the cluster to read, instead of querying a kubeloop process.",
        default=None,
        type=FILE,
        group="Cluster",
    )
    kube_context: str | None = KUBE_CONTEXT
    config: Path | None = option(
        "File with the KubeSchedulerConfiguration of the cluster to read (default: kube-scheduler's defaults).",
        default=None,
        type=FILE,
        group="Cluster",
    )


class KubeconfigOptions(CommandOptions):
    """User, cluster and output of `kubeloop kubeconfig`."""

    user: str = option("Name of the user.", default="kubernetes-admin")
    groups: tuple[str, ...] = option(
        "Comma-separated list of groups of the user. May be repeated.",
        "--group",
        default=(),
        multiple=True,
        metavar="NAMES",
    )
    duration: float = duration("Validity of the certificate.", default=365 * 86_400.0, least=600)
    server: str = option("URL of the API server in the kubeconfig (default: the present one).", default="")
    output: Path | None = option("File to write to (default: stdout).", "-o", "--output", default=None, type=OUTPUT)
    kubeconfig: Path | None = option(
        "Kubeconfig file of the cluster (default: $KUBECONFIG, or the newest `kubeloop up` on this machine).",
        default=None,
        type=FILE,
    )


class ManifestsOptions(CommandOptions):
    """Controllers and installation of `kubeloop manifests`."""

    controllers: str = option(
        "Comma-separated list of controllers, as for `kubeloop run`: module:Class.", default="", required=True
    )
    image: str = option("Image with kubeloop and the module of the controllers.", default="", required=True)
    name: str = option("Name of the objects (default: that of the first controller).", default="")
    namespace: str = option("Namespace of the Deployment.", "-n", "--namespace", default="default")
    replicas: int = option("Number of replicas; one of them leads.", default=1, type=click.IntRange(1))


class NewNodes(CommandOptions, group="Nodes"):
    """The nodes of `kubeloop nodes add`, as the user wrote them."""

    count: int = option("Number of nodes, unless named.", default=1, type=click.IntRange(1, 20_000))
    name_prefix: str = option("Prefix of the names, before a number.", default="node-")
    cpu: str = option("CPU capacity per node (quantity).", default="8")
    memory: str = option("Memory capacity per node (quantity).", default="32Gi")
    pods: int = option("Maximum number of pods per node.", default=110, type=click.IntRange(1))
    zone: str = option("Zone of the nodes (default: the one with the fewest nodes).", default="")
    labels: tuple[str, ...] = option(
        "Additional labels. May be repeated.", default=(), multiple=True, metavar="KEY=VALUE,..."
    )
    taints: tuple[str, ...] = option(
        "Taint of the nodes. May be repeated.", "--taint", default=(), multiple=True, metavar="KEY[=VALUE]:EFFECT"
    )
    stages: tuple[Path, ...] = option(
        "File of KWOK stages, for nodes of a cluster that is not kubeloop's. May be repeated.",
        default=(),
        multiple=True,
        type=FILE,
    )
