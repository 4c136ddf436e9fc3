"""Feature gates of Kubernetes v1.36: names, defaults, stages, and the values of one process.

`GATES`, read from feature_gates.json, holds every gate that the binaries of Kubernetes v1.36 know, so that the same
--feature-gates works for all components. A gate is in one of three groups:

- `obeyed`: both settings do what they do in Kubernetes. The controllers, the scheduler and the development API server
  read these with FeatureGates.enabled(). --help-all lists these only, and of these those of the parts of a command.
- `refused`: it would switch on something that kubeloop does not have. That is an error; AllAlpha and AllBeta leave the
  gate at its default, with a warning.
- All others: gates of parts that kubeloop does not have (kubelet, kube-proxy, other controllers, internals of client-go
  and the API server without an effect on responses). They can be set, with a warning that it has no effect.

Sources: pkg/features, the features packages of apiserver, apiextensions-apiserver, client-go, controller-manager and
component-base; component-base/featuregate/feature_gate.go for the rules of FeatureGates.parse().

Imports msgspec and `user_error` only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from kubeloop.kube.user_error import UserError, closest_names

Stage = Literal["ALPHA", "BETA", "GA", "DEPRECATED"]
Part = Literal["apiserver", "controllers", "scheduler"]
_COMPONENT = "kube"
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_ALL_OF_STAGE: dict[str, Stage] = {"AllAlpha": "ALPHA", "AllBeta": "BETA"}


class Gate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A gate as of v1.36.

    locked: cannot be set to anything but its default. depends: gates that must be on when this one is. obeyed: parts in
    which both settings do what they do in Kubernetes. refused: the reason why it cannot be switched on.
    """

    default: bool
    stage: Stage
    locked: bool = False
    depends: tuple[str, ...] = ()
    obeyed: tuple[Part, ...] = ()
    refused: str = ""


class FeatureGates(msgspec.Struct, frozen=True):
    """Values of the feature gates of one process.

    values: of gates that are set. warnings: messages about gates whose setting has no effect, or that will be removed.
    """

    values: Mapping[str, bool]
    warnings: tuple[str, ...] = ()

    def enabled(self, name: str) -> bool:
        """Return the value of a gate. Raises KeyError for a gate that Kubernetes v1.36 does not know."""
        value = self.values.get(name)
        return GATES[name].default if value is None else value

    @classmethod
    def parse(cls, texts: Iterable[str] | Mapping[str, bool]) -> FeatureGates:
        """Return the values that the --feature-gates of a command line, or a mapping, select.

        texts: values of the option, "A=true,B=false"; a later one takes precedence. Raises UserError.
        """
        requested = dict(texts) if isinstance(texts, Mapping) else _parsed_pairs(texts)
        if not requested:
            return DEFAULT_FEATURE_GATES
        problems, warnings = [], []
        values: dict[str, bool] = {}
        for name, value in requested.items():
            gate = GATES.get(name)
            if gate is None:
                raise _unrecognized(name)
            if gate.locked and value != gate.default:
                problems.append(
                    f"cannot set feature gate {name} to {_text(value)}, feature is locked to {_text(gate.default)}"
                )
            elif value != gate.default and gate.refused:
                problems.append(f"cannot set feature gate {name} to {_text(value)}: {gate.refused}")
            else:
                warnings += _warnings_of(name, gate, value)
                values[name] = value
        if problems:
            raise UserError(_aggregate(problems), hint=_hint())
        for name, stage in _ALL_OF_STAGE.items():
            if name in requested:
                warnings += _set_stage(values, stage, requested[name])
        problems = [
            f"{name} is enabled, but depends on features that are disabled: [{' '.join(disabled)}]"
            for name, gate in GATES.items()
            if gate.depends
            and _enabled(values, name)
            and (disabled := [dependency for dependency in gate.depends if not _enabled(values, dependency)])
        ]
        if problems:
            raise UserError(_aggregate(problems), hint="set the gates that it depends on to the same value")
        return cls(values, tuple(warnings))

    def all(self) -> list[tuple[str, str, bool]]:
        """Return name, stage and value of every gate; the stage of GA is "", as in Kubernetes' metric."""
        return [
            (name, "" if gate.stage == "GA" else gate.stage, self.enabled(name)) for name, gate in sorted(GATES.items())
        ]

    def text(self) -> str:
        """Return the values that are set, as --feature-gates takes them."""
        return ",".join(f"{name}={_text(self.values[name])}" for name in sorted(self.values))


def _parsed_pairs(texts: Iterable[str]) -> dict[str, bool]:
    """Return the values by name. Raises UserError."""
    pairs: dict[str, bool] = {}
    components = set()
    for entry in filter(None, ",".join(texts).split(",")):
        component, separator, pair = (part.strip() for part in entry.rpartition(":"))
        components.add(component)
        if separator and component != _COMPONENT:
            raise UserError(f"component not registered: {component}", hint="write NAME=true or kube:NAME=true")
        name, separator, value = (part.strip() for part in pair.partition("="))
        if not separator:
            raise UserError(f"missing bool value for {name}", hint=f"write {name}=true or {name}=false")
        if value not in _TRUE | _FALSE:
            raise UserError(
                f'invalid value of {name}={value}, err: strconv.ParseBool: parsing "{value}": invalid syntax',
                hint=f"write {name}=true or {name}=false",
            )
        pairs[name] = value in _TRUE
    if len(components) > 1:
        raise UserError(
            "set kube feature gates with default empty prefix or kube: prefix consistently, do not mix use",
            hint="write NAME=true for all",
        )
    return pairs


def _set_stage(values: dict[str, bool], stage: Stage, value: bool) -> list[str]:
    """Set all gates of a stage that are not set. Returns warnings about those that cannot be set."""
    refused = []
    for name, gate in GATES.items():
        if gate.stage == stage and name not in values and not gate.locked and name not in _ALL_OF_STAGE:
            if value != gate.default and gate.refused:
                refused.append(name)
            else:
                values[name] = value
    if not refused:
        return []
    gates = "AllAlpha" if stage == "ALPHA" else "AllBeta"
    return [f"{gates}={_text(value)} leaves the gates at their default that kubeloop cannot set: {', '.join(refused)}"]


def _warnings_of(name: str, gate: Gate, value: bool) -> list[str]:
    warnings = []
    if gate.stage in ("GA", "DEPRECATED"):
        stage = "GA" if gate.stage == "GA" else "deprecated"
        warnings.append(f"setting {stage} feature gate {name}={_text(value)}. It will be removed in a future release.")
    if not gate.obeyed and value != gate.default and name not in _ALL_OF_STAGE:
        warnings.append(f"feature gate {name}={_text(value)} has no effect: it belongs to a part that kubeloop lacks")
    return warnings


def _enabled(values: Mapping[str, bool], name: str) -> bool:
    return values.get(name, GATES[name].default)


def _unrecognized(name: str) -> UserError:
    similar = closest_names(name, GATES)
    return UserError(f"unrecognized feature gate: {name}", hint=f"did you mean {similar[0]}?" if similar else _hint())


def _aggregate(problems: list[str]) -> str:
    return problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"


def _hint() -> str:
    return "kubeloop run --help-all lists the feature gates; docs/feature-gates.md says which can be set"


def _text(value: bool) -> str:
    return "true" if value else "false"


def known_features(parts: Collection[Part]) -> list[str]:
    """Return a line, in kube-scheduler's format, per gate that these parts obey, and for AllAlpha and AllBeta."""
    return [
        f"{_COMPONENT}:{name}=true|false ({gate.stage} - default={_text(gate.default)})"
        for name, gate in sorted(GATES.items())
        if name in _ALL_OF_STAGE or not set(parts).isdisjoint(gate.obeyed)
    ]


GATES: dict[str, Gate] = msgspec.json.decode(
    Path(__file__).with_name("feature_gates.json").read_bytes(), type=dict[str, Gate]
)
"""All gates of v1.36, by name."""

GANG_SCHEDULING_GATES = (
    "GenericWorkload",
    "GangScheduling",
    "TopologyAwareWorkloadScheduling",
    "WorkloadAwarePreemption",
    "WorkloadWithJob",
    "DRAWorkloadResourceClaims",
)
"""Gates that the option --gang-scheduling enables."""


def gang_scheduling_text() -> str:
    """Return the value of --feature-gates that enables gang scheduling."""
    return ",".join(f"{gate}=true" for gate in GANG_SCHEDULING_GATES)


DEFAULT_FEATURE_GATES = FeatureGates({})
