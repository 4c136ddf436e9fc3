"""What a test's cluster is like: one set of options for all forms, the command line and pyproject.toml.

Knows what the options mean to the parts of a cluster; how they are written on a command line is the plugin's.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from kubeloop.kube.errors import UserError

if TYPE_CHECKING:
    from kubeloop.devcluster.kubelet.stages.files import Stage
    from kubeloop.devcluster.server.faults import Faults
    from kubeloop.devcluster.simulation.node_objects import NodeSettings
    from kubeloop.process.control_plane import Settings


class Options(TypedDict, total=False):
    """The keywords of `Cluster`.

    nodes: how many there are at the start; Nodes that a test applies work, too, with the capacity they say.
    node_cpu, node_memory: quantities per node; node_pods: Pods per node; zones: how many zones the nodes are in.
    start_delay, start_spread: seconds from binding to a running container, drawn evenly from delay +- spread.
    stages: files that say what becomes of pods and when, as `kubeloop apiserver --stages` takes them.
    scheduler_config: a KubeSchedulerConfiguration (or Policy): a file, its text, or the object itself. Its plugins
      ("module:Class") are imported with the test's own import path.
    controllers: names with commas, "*" for all, "-name" to leave one out, as `kubeloop run --controllers` takes them.
    faults: what the API server does wrong now and then to the programs under test, as `kubeloop apiserver --faults`
      takes it, or as a mapping; in a `memory_cluster` to its controllers, too.
    seed: of everything that chance decides (names, delays); None: another one each time.
    """

    nodes: int
    node_cpu: str
    node_memory: str
    node_pods: int
    zones: int
    start_delay: float
    start_spread: float
    stages: str | Path | Sequence[str | Path]
    scheduler_config: str | Path | Mapping[str, Any]
    controllers: str | Sequence[str]
    faults: str | Mapping[str, float]
    seed: int | None


class ClusterOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options, complete and in a form that can be sent to another process: files of the scheduler's are read."""

    nodes: int = 3
    node_cpu: str = "8"
    node_memory: str = "32Gi"
    node_pods: int = 110
    zones: int = 3
    start_delay: float = 0.0
    start_spread: float = 0.0
    stages: tuple[str, ...] = ()
    scheduler_config: str = ""
    controllers: str = "*"
    faults: str = ""
    seed: int | None = None

    @property
    def has_default_control_plane(self) -> bool:
        """Is there nothing that controllers or scheduler could refuse?"""
        return not self.scheduler_config and self.controllers == "*"

    def node_settings(self) -> NodeSettings:
        """Raises UserError."""
        from kubeloop.devcluster.simulation.node_objects import NodeSettings
        from kubeloop.process.quantity_options import positive_quantity

        return NodeSettings(
            count=self.nodes,
            capacity={
                "cpu": positive_quantity(self.node_cpu, "node_cpu"),
                "memory": positive_quantity(self.node_memory, "node_memory"),
                "pods": str(self.node_pods),
                "ephemeral-storage": "100Gi",
            },
            zones=tuple(
                f"zone-{chr(ord('a') + number)}" if self.zones <= 26 else f"zone-{number}"
                for number in range(self.zones)
            ),
            start_delay_seconds=self.start_delay,
            start_delay_spread_seconds=min(self.start_spread, self.start_delay),
            probe_delays=False,
            stop_delay_seconds=0.0,
        )

    def settings(self) -> Settings:
        """What the control plane runs. Imports plugins of the scheduler's configuration. Raises UserError."""
        from kubeloop.process.control_plane import Settings, parse_controllers
        from kubeloop.scheduler.config.load import load_configuration
        from kubeloop.scheduler.config.types import SchedulerConfiguration

        scheduler = load_configuration(self.scheduler_config) if self.scheduler_config else SchedulerConfiguration()
        return Settings(
            controllers=parse_controllers(self.controllers), namespace_grace_seconds=0.0, scheduler=scheduler
        )

    def parsed_stages(self) -> list[Stage]:
        """Raises UserError."""
        if not self.stages:
            return []
        from kubeloop.devcluster.kubelet.stages.files import read_stages

        return read_stages([Path(path) for path in self.stages])

    def parsed_faults(self) -> Faults | None:
        """Raises UserError."""
        from kubeloop.devcluster.server.faults import parse_faults

        return parse_faults(self.faults) if self.faults else None


def cluster_options(requested: Options, *, defaults: ClusterOptions | None = None) -> ClusterOptions:
    """Complete `requested`, and check them as far as that needs no part of a cluster. Raises UserError."""
    changes: dict[str, Any] = dict(requested)
    fields = ClusterOptions.__struct_fields__
    for name in changes:
        if name not in fields:
            similar = difflib.get_close_matches(name, fields, n=1)
            hint = f"did you mean {similar[0]}?" if similar else f"there are {', '.join(fields)}"
            raise UserError(f"a cluster has no option '{name}'", hint=hint)
    if "scheduler_config" in changes:
        changes["scheduler_config"] = _configuration_text(changes["scheduler_config"])
    if not isinstance(changes.get("controllers", ""), str):
        changes["controllers"] = ",".join(changes["controllers"])
    if isinstance(faults := changes.get("faults"), Mapping):
        changes["faults"] = ",".join(f"{name}={value}" for name, value in faults.items())
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
        raise UserError(problem.replace("`", ""), hint="kubeloop.testing.Options says what each takes") from None
    for name, minimum in (("nodes", 0), ("node_pods", 1), ("zones", 1), ("start_delay", 0), ("start_spread", 0)):
        if getattr(options, name) < minimum:
            raise UserError(f"cluster option {name}: must be at least {minimum}", hint="for example nodes=3")
    return options


def _configuration_text(value: str | Path | Mapping[str, Any]) -> str:
    if isinstance(value, Mapping):
        return msgspec.json.encode(value).decode()  # JSON is YAML
    if isinstance(value, str) and (not value or "\n" in value or value.lstrip().startswith("{")):
        return value
    try:
        return Path(value).read_text()
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or "not text"
        raise UserError(
            f"cannot read {value}: {problem}", hint="scheduler_config takes a KubeSchedulerConfiguration or a Policy"
        ) from None
