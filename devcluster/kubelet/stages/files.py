"""Stage files: YAML documents of kwok.x-k8s.io/v1alpha1, kind Stage, parsed, validated and compiled.

The same files may contain answers of containers (answer_files). Unsupported fields and values are errors that state
file and line; none is ignored.
Source: KWOK's pkg/apis/v1alpha1/stage_types.go.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kubeloop.devcluster.kubelet.stages.yaml_values import YamlFields, YamlValue, read_documents
from kubeloop.devcluster.languages.gotemplate.template import Template
from kubeloop.devcluster.languages.jq import Query
from kubeloop.kube.user_error import UserError

if TYPE_CHECKING:
    from kubeloop.devcluster.kubelet.stages.expressions import StageExpression

API_VERSION = "kwok.x-k8s.io/v1alpha1"
ADD_TO = "kubeloop.dev/add-to"
"""Annotation of a Stage; the value "built-in" adds the stage to the built-in behaviour instead of replacing it."""

ANSWER_KINDS = frozenset(
    f"{API_VERSION} {prefix}{kind}" for prefix in ("", "Cluster") for kind in ("Logs", "Exec", "Attach", "PortForward")
)
"""Documents that define answers of containers: apiVersion and kind."""

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist"]
PatchType = Literal["json", "merge", "strategic"]
ApplyType = Literal["apply", "merge", "strategic"]


@dataclass(frozen=True, slots=True)
class MatchExpression:
    """An entry of matchExpressions: a jq query whose results are compared with values."""

    query: Query
    operator: Operator
    values: frozenset[str]


@dataclass(frozen=True, slots=True)
class Amount:
    """A number: a constant, or a value read from the object by `query` or `expression`, which take precedence."""

    constant: int | None
    query: Query | None = None
    expression: StageExpression | None = None


@dataclass(frozen=True, slots=True)
class StagePatch:
    """A patch of the object. root: field whose value the template renders; "": the template renders a whole patch."""

    template: Template
    type: PatchType
    root: str
    subresource: str
    user: str = ""  # impersonated user


@dataclass(frozen=True, slots=True)
class Apply:
    """Another object, rendered by the template: created or, if it exists, patched; or a subresource that is patched."""

    template: Template
    type: ApplyType
    subresource: str
    user: str = ""


@dataclass(frozen=True, slots=True)
class Finalizers:
    """Change of an object's finalizers. empty: remove all before adding."""

    add: tuple[str, ...]
    remove: tuple[str, ...]
    empty: bool

    def applied_to(self, before: Iterable[str]) -> list[str]:
        """Return the finalizers of an object after the change. Source: finalizersModify."""
        remaining = [] if self.empty else [finalizer for finalizer in before if finalizer not in self.remove]
        return [*remaining, *(finalizer for finalizer in self.add if finalizer not in remaining)]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a stage; its actions are applied in the order of the fields."""

    event: tuple[str, str, str] | None = None  # type, reason, message
    finalizers: Finalizers | None = None
    delete: bool = False
    patch: StagePatch | None = None
    apply: Apply | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage: a selector of objects, a delay, and steps.

    api_version, kind: of the selected objects. conditions: CEL expressions that must be true for an object.
    delay, jitter: milliseconds, or read from the object; without a delay the stage is applied at once.
    immediate: select the next stage for the result at once.
    extends_built_in: the stage is added to the built-in behaviour and does not replace it.
    """

    name: str
    api_version: str
    kind: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    requirements: tuple[MatchExpression, ...]
    conditions: tuple[StageExpression, ...]
    weight: Amount
    delay: Amount | None
    jitter: Amount | None
    steps: tuple[Step, ...]
    immediate: bool
    extends_built_in: bool

    @property
    def queries(self) -> list[Query]:
        """Return the jq expressions about an object."""
        amounts = (amount for amount in (self.weight, self.delay, self.jitter) if amount is not None)
        return [
            *(requirement.query for requirement in self.requirements),
            *(amount.query for amount in amounts if amount.query is not None),
        ]

    @property
    def is_for_pod_or_node(self) -> bool:
        """Return True for pods and nodes, which have a built-in behaviour."""
        return self.api_version == "v1" and self.kind in ("Pod", "Node")


def read_stages(paths: Iterable[Path]) -> list[Stage]:
    """Return the stages of all files, in order. Raises UserError, also for documents of other kinds."""
    stages = [stage for path in paths for stage in _read(path)]
    for name, count in Counter(stage.name for stage in stages).items():
        if count > 1:
            raise UserError(f"stage {name!r} is defined more than once", hint="give each stage a unique name")
    return stages


def _read(path: Path) -> list[Stage]:
    documents = read_documents(path)
    if not documents:
        raise UserError(
            f"{path}: the file contains no stages", hint=f"a stage has apiVersion {API_VERSION} and kind Stage"
        )
    return [_stage(document) for document in documents if document.kind not in ANSWER_KINDS]


def _stage(value: YamlValue) -> Stage:
    top = value.fields()
    if "apiVersion" not in top or "kind" not in top:
        raise value.error("apiVersion and kind are missing", hint=f"a stage has apiVersion {API_VERSION}, kind Stage")
    if (top["apiVersion"].text(), top["kind"].text()) != (API_VERSION, "Stage"):
        type_meta = f"{top['apiVersion'].text()} {top['kind'].text()}"
        raise value.error(f"{type_meta} is not supported", hint=f"a stage has apiVersion {API_VERSION}, kind Stage")
    top = value.fields("apiVersion", "kind", "metadata", "spec", "status")
    metadata = top.fields("metadata")
    if "name" not in metadata:
        raise value.error("metadata.name is missing")
    if "spec" not in top:
        raise value.error("spec is missing")
    spec = top["spec"].fields(
        "resourceRef", "selector", "weight", "weightFrom", "delay", "next", "steps", "immediateNextStage"
    )
    annotations = metadata.fields("annotations")
    if ADD_TO in annotations:
        annotations[ADD_TO].one_of("built-in")
    if "selector" not in spec:
        raise value.error("spec.selector is missing: the stage would never be applied")
    selector = spec["selector"].fields("matchLabels", "matchAnnotations", "matchExpressions")
    delay = spec.fields(
        "delay", "durationMilliseconds", "durationFrom", "jitterDurationMilliseconds", "jitterDurationFrom"
    )
    api_version, kind = _kind(value, spec)
    expressions = [_requirement(entry) for entry in selector.items_of("matchExpressions")]
    return Stage(
        name=metadata["name"].text(),
        api_version=api_version,
        kind=kind,
        labels={name: value.text() for name, value in selector.fields("matchLabels").items()},
        annotations={name: value.text() for name, value in selector.fields("matchAnnotations").items()},
        requirements=tuple(entry for entry in expressions if isinstance(entry, MatchExpression)),
        conditions=tuple(entry for entry in expressions if not isinstance(entry, MatchExpression)),
        weight=_amount(spec, "weight", "weightFrom") or Amount(0),
        delay=_amount(delay, "durationMilliseconds", "durationFrom") or (Amount(0) if delay else None),
        jitter=_amount(delay, "jitterDurationMilliseconds", "jitterDurationFrom"),
        steps=_steps(value, spec),
        immediate=spec.boolean("immediateNextStage"),
        extends_built_in=ADD_TO in annotations,
    )


def _kind(value: YamlValue, spec: YamlFields) -> tuple[str, str]:
    """Return apiVersion and kind of the selected objects, which need not be served yet."""
    if "resourceRef" not in spec:
        raise value.error("spec.resourceRef is missing")
    reference = spec["resourceRef"].fields("apiGroup", "kind")
    kind, group = reference.text("kind"), reference.text("apiGroup", "v1")
    if not kind:
        raise spec["resourceRef"].error("kind is missing")
    if not re.fullmatch(r"([a-z0-9.-]+/)?v[a-z0-9]+", group):
        hint = 'use a group with its version: "v1", "apps/v1", "example.com/v1"'
        raise reference["apiGroup"].error(f"{group!r} is not an apiVersion", hint=hint)
    return group, kind


def _requirement(value: YamlValue) -> MatchExpression | StageExpression:
    fields = value.fields("key", "operator", "values", "jq", "cel")
    if "cel" in fields:
        return fields["cel"].expression()
    if "jq" in fields:
        fields = fields["jq"].fields("key", "operator", "values")
    if "key" not in fields or "operator" not in fields:
        raise value.error("key and operator are required")
    operator = fields["operator"].one_of("In", "NotIn", "Exists", "DoesNotExist")
    values = frozenset(fields.texts("values"))
    if bool(values) != (operator in ("In", "NotIn")):
        raise value.error(f"{operator} {'needs values' if not values else 'takes no values'}")
    return MatchExpression(fields["key"].query(), operator, values)  # type: ignore[arg-type] # checked by one_of


def _amount(fields: YamlFields, constant: str, source: str) -> Amount | None:
    """Return the number of the fields named `constant` and `source`; None if both are absent."""
    query = None
    if source in fields:
        lookup = fields[source].fields("expressionFrom", "jq", "cel")
        if "cel" in lookup:
            return Amount(fields.number(constant), None, lookup["cel"].expression())
        if "jq" in lookup:
            query = lookup["jq"].fields("expression").required("expression").query()
        else:
            query = lookup.required("expressionFrom").query()
    number = fields.number(constant)
    return None if number is None and query is None else Amount(number, query)


def _steps(value: YamlValue, spec: YamlFields) -> tuple[Step, ...]:
    """Return the steps of `steps`, or of `next` in KWOK's order: event, finalizers, patches, deletion."""
    if "steps" in spec:
        return tuple(_step(item, _default_patch_type(spec)) for item in spec["steps"].items())
    if "next" not in spec:
        raise value.error("spec.next is missing")
    next_fields = spec["next"].fields(
        "event", "finalizers", "delete", "patches", "statusTemplate", "statusSubresource", "statusPatchAs"
    )
    steps = []
    if "event" in next_fields:
        steps.append(Step(event=_event(next_fields["event"])))
    if "finalizers" in next_fields:
        steps.append(Step(finalizers=_finalizers(next_fields["finalizers"])))
    if "patches" in next_fields:
        steps += [Step(patch=_patch(item, _default_patch_type(spec))) for item in next_fields["patches"].items()]
    elif next_fields.text("statusTemplate").strip():
        subresource, user = next_fields.text("statusSubresource", "status"), next_fields.user("statusPatchAs")
        template = next_fields["statusTemplate"].template()
        steps.append(Step(patch=StagePatch(template, _default_patch_type(spec), "status", subresource, user)))
    if next_fields.boolean("delete"):
        steps.append(Step(delete=True))
    return tuple(steps)


def _default_patch_type(spec: YamlFields) -> PatchType:
    """Return the type of patches without `type`: strategic for pods and nodes, merge for all other kinds."""
    reference = spec["resourceRef"].fields("apiGroup", "kind")
    is_pod_or_node = reference.text("apiGroup", "v1") == "v1" and reference.text("kind") in ("Pod", "Node")
    return "strategic" if is_pod_or_node else "merge"


def _step(value: YamlValue, default: PatchType) -> Step:
    fields = value.fields("event", "finalizers", "delete", "patch", "apply")
    return Step(
        event=_event(fields["event"]) if "event" in fields else None,
        finalizers=_finalizers(fields["finalizers"]) if "finalizers" in fields else None,
        delete=fields.boolean("delete"),
        patch=_patch(fields["patch"], default) if "patch" in fields else None,
        apply=_apply(fields["apply"]) if "apply" in fields else None,
    )


def _event(value: YamlValue) -> tuple[str, str, str]:
    fields = value.fields("type", "reason", "message")
    type_ = fields["type"].one_of("Normal", "Warning") if "type" in fields else "Normal"
    return type_, fields.text("reason"), fields.text("message")


def _finalizers(value: YamlValue) -> Finalizers:
    fields = value.fields("add", "remove", "empty")

    def values(name: str) -> tuple[str, ...]:
        return tuple(item.fields("value").required("value").text() for item in fields.items_of(name))

    return Finalizers(values("add"), values("remove"), fields.boolean("empty"))


def _apply(value: YamlValue) -> Apply:
    fields = value.fields("template", "subresource", "type", "impersonation")
    return Apply(
        template=fields.required("template").template(),
        type=fields["type"].one_of("apply", "merge", "strategic") if "type" in fields else "apply",  # type: ignore[arg-type] # checked by one_of
        subresource=fields.text("subresource"),
        user=fields.user("impersonation"),
    )


def _patch(value: YamlValue, default: PatchType) -> StagePatch:
    fields = value.fields("subresource", "root", "template", "type", "impersonation")
    return StagePatch(
        template=fields.required("template").template(),
        type=fields["type"].one_of("json", "merge", "strategic") if "type" in fields else default,  # type: ignore[arg-type] # checked by one_of
        root=fields.text("root"),
        subresource=_subresource(fields, default),
        user=fields.user("impersonation"),
    )


def _subresource(fields: YamlFields, default: PatchType) -> str:
    """Return the patched subresource, "" for the object itself; pods and nodes support `status` only."""
    if "subresource" in fields and default == "strategic":
        return fields["subresource"].one_of("", "status")
    return fields.text("subresource")
