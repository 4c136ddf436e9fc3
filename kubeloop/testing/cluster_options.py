"""Options of test clusters, common to all forms, the command line and pyproject.toml.

Converts options to the settings of a cluster's parts; the plugin parses them from the command line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from kubeloop.devcluster.admission.plugin_settings import KUBEADM_PLUGINS, PluginSettings, parse_plugins
from kubeloop.devcluster.authorization.mode_names import DEFAULT_MODES, parse_authorization_modes
from kubeloop.kube.feature_gates import FeatureGates, gang_scheduling_text
from kubeloop.kube.user_error import UserError, closest_names, read_text
from kubeloop.process.control_plane.service_range import parse_service_range

if TYPE_CHECKING:
    from kubeloop.controllers.api.controller import ControllerFactory
    from kubeloop.devcluster.server.faults import Faults
    from kubeloop.devcluster.simulation.node_objects import NodeSettings
    from kubeloop.process.control_plane.control_plane import Settings


class Options(TypedDict, total=False):
    """The keywords of `Cluster`.

    nodes: number of nodes at the start; Nodes that a test applies are simulated as well, with their own capacity.
    node_cpu, node_memory: quantities per node; node_pods: maximum number of pods per node; zones: number of zones.
    start_delay, start_spread: seconds from binding to running containers, drawn evenly from delay +- spread.
    job_duration: seconds after which the containers of a Job's pod exit with 0 (1).
    complete_bare_pods: pods without a controller complete after the job duration, too, unless they have restartPolicy
      Always (False).
    command_exits: containers end as their command says, such as `exit 1` or `sleep 5` (True).
    missing_images: patterns of images that cannot be pulled, comma-separated or as a sequence.
    devices: file of the devices of the nodes, as for `kubeloop up --devices`.
    service_cluster_ip_range: address range of Services (10.0.0.0/24).
    stages: files of KWOK stages that simulate pods, as for `kubeloop apiserver --stages`.
    scheduler_config: a KubeSchedulerConfiguration (or Policy): a file, its text, or the object itself. Its plugins
      ("module:Class") are imported with the test's own import path.
    controllers: comma-separated names, "*" for all built-in ones, "-name" to exclude one, "module:Class", as for
      `kubeloop run --controllers`; or a sequence of these, in a `memory_cluster` also of the classes of controllers.
    faults: faults that the API server injects into requests of the programs under test, as for `kubeloop apiserver
      --faults`, or as a mapping; in a `memory_cluster` also into those of its controllers.
    gang_scheduling: True enables gang scheduling, as `kubeloop up --gang-scheduling` does.
    feature_gates: values of feature gates, as for `kubeloop up --feature-gates`, or as a mapping of names to booleans.
    enable_admission_plugins, disable_admission_plugins: comma-separated names or sequences of names, as for
      `kubeloop up --enable-admission-plugins` and `--disable-admission-plugins`.
    authorization_mode: comma-separated names of authorizers or a sequence of names, as for `kubeloop up
      --authorization-mode` (Node,RBAC).
    resolve: local addresses of Services, "NAME.NAMESPACE.svc=HOST:PORT", comma-separated or a sequence, as for
      `kubeloop up --resolve`.
    seed: of all random decisions (names, delays); None: a different one each time.
    """

    nodes: int
    node_cpu: str
    node_memory: str
    node_pods: int
    zones: int
    start_delay: float
    start_spread: float
    job_duration: float
    complete_bare_pods: bool
    command_exits: bool
    missing_images: str | Sequence[str]
    devices: str | Path
    service_cluster_ip_range: str
    stages: str | Path | Sequence[str | Path]
    scheduler_config: str | Path | Mapping[str, Any]
    controllers: str | Sequence[str | ControllerFactory]
    faults: str | Mapping[str, float]
    gang_scheduling: bool
    feature_gates: str | Mapping[str, bool]
    enable_admission_plugins: str | Sequence[str]
    disable_admission_plugins: str | Sequence[str]
    authorization_mode: str | Sequence[str]
    resolve: str | Sequence[str]
    seed: int | None


class ClusterOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Complete options, in a form that can be sent to another process: scheduler configuration files are read."""

    nodes: int = 3
    node_cpu: str = "8"
    node_memory: str = "32Gi"
    node_pods: int = 110
    zones: int = 3
    start_delay: float = 0.0
    start_spread: float = 0.0
    job_duration: float = 1.0
    complete_bare_pods: bool = False
    command_exits: bool = True
    missing_images: str = ""
    devices: str = ""
    service_cluster_ip_range: str = "10.0.0.0/24"
    stages: tuple[str, ...] = ()
    scheduler_config: str = ""
    controllers: str = "*"
    faults: str = ""
    gang_scheduling: bool = False
    feature_gates: str = ""
    enable_admission_plugins: str = ""
    disable_admission_plugins: str = ""
    authorization_mode: str = ",".join(DEFAULT_MODES)
    resolve: str = ""
    seed: int | None = None

    @property
    def has_default_control_plane(self) -> bool:
        """Return True if the options cannot be rejected by controllers or scheduler."""
        return not self.scheduler_config and self.controllers == "*"

    def node_settings(self) -> NodeSettings:
        """Return the settings of the simulated nodes. Raises UserError."""
        from kubeloop.devcluster.simulation.node_objects import NodeSettings
        from kubeloop.process.development_cluster.node_options import node_capacity, read_device_pools, zone_names

        return NodeSettings(
            count=self.nodes,
            capacity=node_capacity(self.node_cpu, self.node_memory, self.node_pods, option="node_{}"),
            zones=zone_names(self.zones),
            devices=read_device_pools(self.devices),
            start_delay_seconds=self.start_delay,
            start_delay_spread_seconds=min(self.start_spread, self.start_delay),
            job_run_seconds=self.job_duration,
            complete_bare_pods=self.complete_bare_pods,
            command_exits=self.command_exits,
            missing_images=tuple(filter(None, self.missing_images.split(","))),
            probe_delays=False,
            stop_delay_seconds=0.0,
        )

    def service_range(self) -> IPv4Network:
        """Return the address range of Services. Raises UserError."""
        return parse_service_range(self.service_cluster_ip_range, "service_cluster_ip_range")

    def settings(self) -> Settings:
        """Return the settings of the control plane. Imports the scheduler's plugins. Raises UserError."""
        from kubeloop.process.control_plane.control_plane import Settings
        from kubeloop.process.control_plane.controller_selection import select_controllers
        from kubeloop.scheduler.config.load import load_configuration
        from kubeloop.scheduler.config.types import default_configuration
        from kubeloop.scheduler.legacy_policy.policy import POLICY_KIND

        gates = self.parsed_feature_gates()
        text = self.scheduler_config
        scheduler = load_configuration(text, gates, POLICY_KIND) if text else default_configuration(gates)
        selection = select_controllers(self.controllers, "controllers")
        return Settings(
            controllers=selection.built_in,
            custom_controllers=selection.custom,
            development=True,
            scheduler=scheduler,
            feature_gates=gates,
        )

    def parsed_feature_gates(self) -> FeatureGates:
        """Return the feature gates. Raises UserError."""
        return FeatureGates.parse([gang_scheduling_text() if self.gang_scheduling else "", self.feature_gates])

    def admission_plugins(self) -> PluginSettings:
        """Return the admission plugins. Raises UserError."""
        return parse_plugins([self.enable_admission_plugins], [self.disable_admission_plugins], KUBEADM_PLUGINS)

    def resolved_addresses(self) -> dict[str, tuple[str, int]]:
        """Return the local addresses of Services, by host. Raises UserError."""
        if not self.resolve:
            return {}
        from kubeloop.devcluster.outgoing.service_addresses import parse_addresses

        return parse_addresses(filter(None, self.resolve.split(",")))

    def authorization_modes(self) -> tuple[str, ...]:
        """Return the authorizers in their order. Raises UserError."""
        return parse_authorization_modes(self.authorization_mode)

    def parsed_faults(self) -> Faults | None:
        """Return the faults to inject. Raises UserError."""
        from kubeloop.devcluster.server.faults import parse_faults

        return parse_faults(self.faults) if self.faults else None


def cluster_options(requested: Options, *, defaults: ClusterOptions | None = None) -> ClusterOptions:
    """Return complete options, validated as far as possible without imports of a cluster's parts. Raises UserError."""
    changes: dict[str, Any] = dict(requested)
    fields = ClusterOptions.__struct_fields__
    for name in changes:
        if name not in fields:
            similar = closest_names(name, fields)
            hint = f"did you mean {similar[0]}?" if similar else f"there are {', '.join(fields)}"
            raise UserError(f"a cluster has no option '{name}'", hint=hint)
    if "scheduler_config" in changes:
        changes["scheduler_config"] = _configuration_text(changes["scheduler_config"])
    for name in _LISTS:
        if not isinstance(changes.get(name, ""), str):
            if not all(isinstance(item, str) for item in changes[name]):
                raise UserError(
                    f"cluster option {name}: not a sequence of texts",
                    hint="a cluster in another process imports a class by its name, 'module:Class'",
                )
            changes[name] = ",".join(changes[name])
    if isinstance(faults := changes.get("faults"), Mapping):
        changes["faults"] = ",".join(f"{name}={value}" for name, value in faults.items())
    if isinstance(gates := changes.get("feature_gates"), Mapping):
        changes["feature_gates"] = FeatureGates(gates).text()
    if changes.get("devices"):
        changes["devices"] = str(Path(changes["devices"]).absolute())
    if isinstance(stages := changes.get("stages", ()), str | Path):
        changes["stages"] = (stages,)
    if "stages" in changes:
        changes["stages"] = [str(Path(path).absolute()) for path in changes["stages"]]
    default_values = {name: getattr(defaults, name) for name in fields} if defaults is not None else {}
    try:
        options = msgspec.convert(default_values | changes, ClusterOptions)
    except msgspec.ValidationError as error:
        what, _, where = str(error).rstrip("`").partition(" - at `$.")
        problem = f"cluster option {where}: {what[0].lower()}{what[1:]}" if where else f"cluster options: {what}"
        raise UserError(problem.replace("`", ""), hint="see kubeloop.testing.Options") from None
    minimums = {"nodes": 0, "node_pods": 1, "zones": 1, "start_delay": 0, "start_spread": 0, "job_duration": 0}
    for name, minimum in minimums.items():
        if getattr(options, name) < minimum:
            raise UserError(f"cluster option {name}: must be at least {minimum}", hint="for example nodes=3")
    options.parsed_feature_gates()  # raises UserError
    options.service_range()  # raises UserError
    options.admission_plugins()
    options.authorization_modes()
    options.resolved_addresses()
    return options


_LISTS = (
    "controllers", "missing_images", "enable_admission_plugins", "disable_admission_plugins", "authorization_mode",
    "resolve",
)  # fmt: skip


def _configuration_text(value: str | Path | Mapping[str, Any]) -> str:
    if isinstance(value, Mapping):
        return msgspec.json.encode(value).decode()  # JSON is YAML
    if isinstance(value, str) and (not value or "\n" in value or value.lstrip().startswith("{")):
        return value
    return read_text(value, hint="scheduler_config takes a KubeSchedulerConfiguration or a Policy")
