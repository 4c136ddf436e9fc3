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

import yaml

from kubeloop.devcluster.languages.gotemplate.syntax import Arity, TemplateError
from kubeloop.devcluster.languages.gotemplate.template import Template
from kubeloop.devcluster.languages.jq import JqError, Query
from kubeloop.kube import yaml as yaml_text
from kubeloop.kube.user_error import UserError

if TYPE_CHECKING:
    from kubeloop.devcluster.kubelet.stages.expressions import StageExpression

API_VERSION = "kwok.x-k8s.io/v1alpha1"
ADD_TO = "kubeloop.dev/add-to"
"""Annotation of a Stage; the value "built-in" adds the stage to the built-in behaviour instead of replacing it."""

CONTEXT: dict[str, Arity] = {
    "Now": (0, 0),
    "StartTime": (0, 0),
    "Version": (0, 0),
    "NodeIP": (0, 0),
    "NodeName": (0, 0),
    "NodePort": (0, 0),
    "PodIP": (0, 0),
    "NodeIPWith": (1, 1),
    "NodeIPsWith": (1, 1),
    "PodIPWith": (5, 5),
    "PodIPsWith": (5, 5),
}
"""Template functions that need the cluster, and the least and greatest number of their arguments."""

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
class Patch:
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
    patch: Patch | None = None
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


def read_documents(path: Path) -> list[YamlValue]:
    """Return the documents of a file that are not empty. Raises UserError."""
    try:
        text = path.read_text()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", hint="--stages takes a YAML file of KWOK stages") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not a text file", hint="--stages takes a YAML file of KWOK stages") from None
    try:
        with yaml_text.yaml_errors():
            documents = [node for node in yaml.compose_all(text, Loader=yaml.SafeLoader) if node is not None]
    except yaml_text.InvalidYaml as error:
        raise UserError(f"{path}: {error.place}", hint="correct the YAML") from None
    return [YamlValue(path, document) for document in documents if not _is_null(document)]


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.value in ("", "null", "~")


class YamlValue:
    """A YAML value with its position in the file. name: path of its field, such as `spec.delay`."""

    def __init__(self, path: Path, node: yaml.Node, name: str = "") -> None:
        self._path = path
        self._node = node
        self._name = name

    def error(self, problem: str, *, line: int | None = None, hint: str = "") -> UserError:
        """Return an error with file, line and field; without `line`, that of the value."""
        number = self._node.start_mark.line + 1 if line is None else line
        field = f"{self._name}: " if self._name else ""
        return UserError(
            f"{self._path}:{number}: {field}{problem}", hint=hint or "docs/nodes.md lists what stages support"
        )

    @property
    def kind(self) -> str:
        """Return apiVersion and kind of a document in one text; "" if it is not a map."""
        if not isinstance(self._node, yaml.MappingNode):
            return ""
        fields = {key.value: node.value for key, node in self._node.value}
        return f"{fields.get('apiVersion', '')} {fields.get('kind', '')}"

    @property
    def folder(self) -> Path:
        """Return the folder of the file."""
        return self._path.parent

    def fields(self, *known: str) -> dict[str, YamlValue]:
        """Return the fields of a map that are not null. Raises UserError for fields that `known`, if any, lacks."""
        if not isinstance(self._node, yaml.MappingNode):
            raise self.error("a map is required")
        fields: dict[str, YamlValue] = {}
        for key, node in self._node.value:
            name = f"{self._name}.{key.value}" if self._name else key.value
            if key.value not in known and known:
                raise YamlValue(self._path, key, self._name).error(f"field {key.value!r} is not supported")
            if key.value in fields:
                raise YamlValue(self._path, key, self._name).error(f"{key.value!r} is set twice")
            if not _is_null(node) or node.style:
                fields[key.value] = YamlValue(self._path, node, name)
        return fields

    def items(self) -> list[YamlValue]:
        if not isinstance(self._node, yaml.SequenceNode):
            raise self.error("a list is required")
        return [YamlValue(self._path, item, f"{self._name}[{index}]") for index, item in enumerate(self._node.value)]

    def text(self) -> str:
        if not isinstance(self._node, yaml.ScalarNode):
            raise self.error("a string is required")
        return str(self._node.value)

    def texts(self) -> dict[str, str]:
        return {name: value.text() for name, value in self.fields().items()}

    def one_of(self, *values: str) -> str:
        if self.text() not in values:
            raise self.error(f"{self.text()!r} is not one of {', '.join(values)}")
        return self.text()

    def boolean(self) -> bool:
        return self.one_of("true", "false") == "true"

    def number(self) -> int:
        if not re.fullmatch(r"\d+", self.text()):
            raise self.error(f"{self.text()!r} is not a non-negative integer")
        return int(self.text())

    def query(self) -> Query:
        try:
            return Query(self.text())
        except JqError as error:
            raise self.error(f"jq expression {self.text()!r}: {error}") from None

    def expression(self) -> StageExpression:
        """Compile the CEL expression of a map with the field `expression`. Imports the compiler on first use."""
        from kubeloop.devcluster.kubelet.stages.expressions import InvalidExpression, StageExpression

        fields = self.fields("expression")
        if "expression" not in fields:
            raise self.error("expression is missing")
        text = fields["expression"].text().strip()
        try:
            return StageExpression(text)
        except InvalidExpression as error:
            raise fields["expression"].error(f"CEL expression {text!r}: {error}") from None

    def user(self) -> str:
        """Return the user of an impersonation."""
        fields = self.fields("username")
        if "username" not in fields or not fields["username"].text():
            raise self.error("username is missing")
        return fields["username"].text()

    def template(self) -> Template:
        """Compile a template. Errors state its line in the file, also within a block scalar."""
        text = self.text()
        assert isinstance(self._node, yaml.ScalarNode)
        block = self._node.style in ("|", ">")
        trimmed = text.lstrip()
        first = self._node.start_mark.line + 1 + block + text[: len(text) - len(trimmed)].count("\n")
        try:
            return Template(trimmed.rstrip(), context=CONTEXT)
        except TemplateError as error:
            raise self.error(f"template: {error.problem}", line=first + error.line - 1) from None


def _stage(value: YamlValue) -> Stage:
    top = value.fields()
    if "apiVersion" not in top or "kind" not in top:
        raise value.error("apiVersion and kind are missing", hint=f"a stage has apiVersion {API_VERSION}, kind Stage")
    if (top["apiVersion"].text(), top["kind"].text()) != (API_VERSION, "Stage"):
        type_meta = f"{top['apiVersion'].text()} {top['kind'].text()}"
        raise value.error(f"{type_meta} is not supported", hint=f"a stage has apiVersion {API_VERSION}, kind Stage")
    top = value.fields("apiVersion", "kind", "metadata", "spec", "status")
    metadata = top["metadata"].fields() if "metadata" in top else {}
    if "name" not in metadata:
        raise value.error("metadata.name is missing")
    if "spec" not in top:
        raise value.error("spec is missing")
    spec = top["spec"].fields(
        "resourceRef", "selector", "weight", "weightFrom", "delay", "next", "steps", "immediateNextStage"
    )
    annotations = metadata["annotations"].fields() if "annotations" in metadata else {}
    if ADD_TO in annotations:
        annotations[ADD_TO].one_of("built-in")
    if "selector" not in spec:
        raise value.error("spec.selector is missing: the stage would never be applied")
    selector = spec["selector"].fields("matchLabels", "matchAnnotations", "matchExpressions")
    delay = (
        spec["delay"].fields("durationMilliseconds", "durationFrom", "jitterDurationMilliseconds", "jitterDurationFrom")
        if "delay" in spec
        else {}
    )
    jitter = _amount(delay, "jitterDurationMilliseconds", "jitterDurationFrom")
    api_version, kind = _kind(value, spec)
    requirements, conditions = [], []
    for entry in selector["matchExpressions"].items() if "matchExpressions" in selector else ():
        requirement = _requirement(entry)
        if isinstance(requirement, MatchExpression):
            requirements.append(requirement)
        else:
            conditions.append(requirement)
    return Stage(
        name=metadata["name"].text(),
        api_version=api_version,
        kind=kind,
        labels=selector["matchLabels"].texts() if "matchLabels" in selector else {},
        annotations=selector["matchAnnotations"].texts() if "matchAnnotations" in selector else {},
        requirements=tuple(requirements),
        conditions=tuple(conditions),
        weight=_amount(spec, "weight", "weightFrom") or Amount(0),
        delay=_amount(delay, "durationMilliseconds", "durationFrom") or (Amount(0) if delay else None),
        jitter=jitter,
        steps=_steps(value, spec),
        immediate="immediateNextStage" in spec and spec["immediateNextStage"].boolean(),
        extends_built_in=ADD_TO in annotations,
    )


def _kind(value: YamlValue, spec: dict[str, YamlValue]) -> tuple[str, str]:
    """Return apiVersion and kind of the selected objects, which need not be served yet."""
    if "resourceRef" not in spec:
        raise value.error("spec.resourceRef is missing")
    reference = spec["resourceRef"].fields("apiGroup", "kind")
    kind = reference["kind"].text() if "kind" in reference else ""
    group = reference["apiGroup"].text() if "apiGroup" in reference else "v1"
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
    values = frozenset(item.text() for item in fields["values"].items()) if "values" in fields else frozenset()
    if bool(values) != (operator in ("In", "NotIn")):
        raise value.error(f"{operator} {'needs values' if not values else 'takes no values'}")
    return MatchExpression(fields["key"].query(), operator, values)  # type: ignore[arg-type] # checked by one_of


def _amount(fields: dict[str, YamlValue], constant: str, source: str) -> Amount | None:
    """Return the number of the fields named `constant` and `source`; None if both are absent."""
    query = None
    if source in fields:
        lookup = fields[source].fields("expressionFrom", "jq", "cel")
        if "cel" in lookup:
            number = fields[constant].number() if constant in fields else None
            return Amount(number, None, lookup["cel"].expression())
        if "jq" in lookup:
            inner = lookup["jq"].fields("expression")
            lookup = {"expressionFrom": inner["expression"]} if "expression" in inner else {}
        if "expressionFrom" not in lookup:
            raise fields[source].error("expressionFrom is missing")
        query = lookup["expressionFrom"].query()
    number = fields[constant].number() if constant in fields else None
    return None if number is None and query is None else Amount(number, query)


def _steps(value: YamlValue, spec: dict[str, YamlValue]) -> tuple[Step, ...]:
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
    elif "statusTemplate" in next_fields and next_fields["statusTemplate"].text().strip():
        subresource = next_fields["statusSubresource"].text() if "statusSubresource" in next_fields else "status"
        user = next_fields["statusPatchAs"].user() if "statusPatchAs" in next_fields else ""
        template = next_fields["statusTemplate"].template()
        steps.append(Step(patch=Patch(template, _default_patch_type(spec), "status", subresource, user)))
    if "delete" in next_fields and next_fields["delete"].boolean():
        steps.append(Step(delete=True))
    return tuple(steps)


def _default_patch_type(spec: dict[str, YamlValue]) -> PatchType:
    """Return the type of patches without `type`: strategic for pods and nodes, merge for all other kinds."""
    reference = spec["resourceRef"].fields("apiGroup", "kind")
    group = reference["apiGroup"].text() if "apiGroup" in reference else "v1"
    return "strategic" if group == "v1" and reference["kind"].text() in ("Pod", "Node") else "merge"


def _step(value: YamlValue, default: PatchType) -> Step:
    fields = value.fields("event", "finalizers", "delete", "patch", "apply")
    return Step(
        event=_event(fields["event"]) if "event" in fields else None,
        finalizers=_finalizers(fields["finalizers"]) if "finalizers" in fields else None,
        delete="delete" in fields and fields["delete"].boolean(),
        patch=_patch(fields["patch"], default) if "patch" in fields else None,
        apply=_apply(fields["apply"]) if "apply" in fields else None,
    )


def _event(value: YamlValue) -> tuple[str, str, str]:
    fields = value.fields("type", "reason", "message")
    type_ = fields["type"].one_of("Normal", "Warning") if "type" in fields else "Normal"
    return (
        type_,
        fields["reason"].text() if "reason" in fields else "",
        fields["message"].text() if "message" in fields else "",
    )


def _finalizers(value: YamlValue) -> Finalizers:
    fields = value.fields("add", "remove", "empty")

    def values(name: str) -> tuple[str, ...]:
        items = fields[name].items() if name in fields else []
        return tuple(item.fields("value")["value"].text() for item in items)

    return Finalizers(values("add"), values("remove"), "empty" in fields and fields["empty"].boolean())


def _apply(value: YamlValue) -> Apply:
    fields = value.fields("template", "subresource", "type", "impersonation")
    if "template" not in fields:
        raise value.error("template is missing")
    return Apply(
        template=fields["template"].template(),
        type=fields["type"].one_of("apply", "merge", "strategic") if "type" in fields else "apply",  # type: ignore[arg-type] # checked by one_of
        subresource=fields["subresource"].text() if "subresource" in fields else "",
        user=fields["impersonation"].user() if "impersonation" in fields else "",
    )


def _patch(value: YamlValue, default: PatchType) -> Patch:
    fields = value.fields("subresource", "root", "template", "type", "impersonation")
    if "template" not in fields:
        raise value.error("template is missing")
    return Patch(
        template=fields["template"].template(),
        type=fields["type"].one_of("json", "merge", "strategic") if "type" in fields else default,  # type: ignore[arg-type] # checked by one_of
        root=fields["root"].text() if "root" in fields else "",
        subresource=_subresource(fields, default),
        user=fields["impersonation"].user() if "impersonation" in fields else "",
    )


def _subresource(fields: dict[str, YamlValue], default: PatchType) -> str:
    """Return the patched subresource, "" for the object itself; pods and nodes support `status` only."""
    if "subresource" not in fields:
        return ""
    value = fields["subresource"]
    return value.one_of("", "status") if default == "strategic" else value.text()
