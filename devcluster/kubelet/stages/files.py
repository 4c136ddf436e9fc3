"""Stage files: YAML documents of kwok.x-k8s.io/v1alpha1, kind Stage, read, checked and compiled.

What a stage asks for and is not supported here is refused when the file is read, with file and line; never ignored.
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
from kubeloop.kube.errors import UserError

if TYPE_CHECKING:
    from kubeloop.devcluster.kubelet.stages.expressions import Expression

API_VERSION = "kwok.x-k8s.io/v1alpha1"
ADD_TO = "kubeloop.dev/add-to"
"""Annotation of a Stage: "built-in": it is played on top of the built-in behaviour and does not replace it."""

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
"""Functions of templates that need the cluster, and the number of their arguments."""

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist"]
PatchType = Literal["json", "merge", "strategic"]
ApplyType = Literal["apply", "merge", "strategic"]


@dataclass(frozen=True, slots=True)
class Requirement:
    """One of matchExpressions."""

    query: Query
    operator: Operator
    values: frozenset[str]


@dataclass(frozen=True, slots=True)
class Amount:
    """A number that stands in the file, or is looked up in the object (which comes first)."""

    constant: int | None
    query: Query | None = None
    expression: Expression | None = None


@dataclass(frozen=True, slots=True)
class Patch:
    """root: the field that the rendered template becomes the value of; "": the object itself."""

    template: Template
    type: PatchType
    root: str
    subresource: str
    user: str = ""  # who is to be impersonated


@dataclass(frozen=True, slots=True)
class Apply:
    """Another object, which the template makes. It is created, or changed if it is there; or a subresource of it is."""

    template: Template
    type: ApplyType
    subresource: str
    user: str = ""


@dataclass(frozen=True, slots=True)
class Finalizers:
    add: tuple[str, ...]
    remove: tuple[str, ...]
    empty: bool

    def applied_to(self, before: Iterable[str]) -> list[str]:
        """What becomes of an object's finalizers. Source: finalizersModify."""
        kept = [] if self.empty else [each for each in before if each not in self.remove]
        return [*kept, *(each for each in self.add if each not in kept)]


@dataclass(frozen=True, slots=True)
class Step:
    """What a stage does; within a step in the order of the fields."""

    event: tuple[str, str, str] | None = None  # type, reason, message
    finalizers: Finalizers | None = None
    delete: bool = False
    patch: Patch | None = None
    apply: Apply | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """`delay`, `jitter`: milliseconds, or what the object says; without a delay it is played at once.

    api_version, kind: of what it is played on. conditions: CEL that must be true of an object.
    """

    name: str
    api_version: str
    kind: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    requirements: tuple[Requirement, ...]
    conditions: tuple[Expression, ...]
    weight: Amount
    delay: Amount | None
    jitter: Amount | None
    steps: tuple[Step, ...]
    immediate: bool
    adds: bool  # to the built-in behaviour

    @property
    def of_kubelets(self) -> bool:
        """Is it played on pods or nodes, whose kubelets have a behaviour of their own?"""
        return self.api_version == "v1" and self.kind in ("Pod", "Node")


def read_stages(paths: Iterable[Path]) -> list[Stage]:
    """The stages of all files, in order; documents of other kinds are refused. Raises UserError."""
    stages = [stage for path in paths for stage in _read(path)]
    for name, count in Counter(stage.name for stage in stages).items():
        if count > 1:
            raise UserError(f"stage {name!r} stands twice", hint="give each stage a name of its own")
    return stages


def _read(path: Path) -> list[Stage]:
    try:
        text = path.read_text()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", hint="--stages takes a YAML file of KWOK stages") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is no text", hint="--stages takes a YAML file of KWOK stages") from None
    try:
        with yaml_text.yaml_errors():
            documents = [node for node in yaml.compose_all(text, Loader=yaml.SafeLoader) if node is not None]
    except yaml_text.InvalidYaml as error:
        raise UserError(f"{path}: {error.place}", hint="correct the YAML") from None
    stages = [_stage(_Target(path, document)) for document in documents if not _empty(document)]
    if not stages:
        raise UserError(f"{path}: no stages in it", hint=f"a stage has apiVersion {API_VERSION} and kind Stage")
    return stages


def _empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.value in ("", "null", "~")


class _Target:
    """A value in the file, with where it stands."""

    def __init__(self, path: Path, node: yaml.Node, name: str = "") -> None:
        self._path = path
        self._node = node
        self._name = name

    def wrong(self, problem: str, *, line: int | None = None, hint: str = "") -> UserError:
        at = self._node.start_mark.line + 1 if line is None else line
        where = f"{self._name}: " if self._name else ""
        return UserError(f"{self._path}:{at}: {where}{problem}", hint=hint or "docs/nodes.md tells what stages may say")

    def fields(self, *known: str) -> dict[str, _Target]:
        """The fields of a map; raises for one that is not `known`. Null counts as absent."""
        if not isinstance(self._node, yaml.MappingNode):
            raise self.wrong("a map is expected")
        found: dict[str, _Target] = {}
        for key, value in self._node.value:
            name = f"{self._name}.{key.value}" if self._name else key.value
            place = _Target(self._path, value, name)
            if key.value not in known and known:
                raise _Target(self._path, key, self._name).wrong(f"field {key.value!r} is not supported")
            if key.value in found:
                raise _Target(self._path, key, self._name).wrong(f"{key.value!r} stands twice")
            if not _empty(value) or value.style:
                found[key.value] = place
        return found

    def items(self) -> list[_Target]:
        if not isinstance(self._node, yaml.SequenceNode):
            raise self.wrong("a list is expected")
        return [_Target(self._path, each, f"{self._name}[{at}]") for at, each in enumerate(self._node.value)]

    def text(self) -> str:
        if not isinstance(self._node, yaml.ScalarNode):
            raise self.wrong("a text is expected")
        return str(self._node.value)

    def texts(self) -> dict[str, str]:
        return {name: place.text() for name, place in self.fields().items()}

    def one_of(self, *values: str) -> str:
        if self.text() not in values:
            raise self.wrong(f"{self.text()!r} is not one of {', '.join(values)}")
        return self.text()

    def boolean(self) -> bool:
        return self.one_of("true", "false") == "true"

    def number(self) -> int:
        if not re.fullmatch(r"\d+", self.text()):
            raise self.wrong(f"{self.text()!r} is not a whole number of 0 or more")
        return int(self.text())

    def query(self) -> Query:
        try:
            return Query(self.text())
        except JqError as error:
            raise self.wrong(f"jq expression {self.text()!r}: {error}") from None

    def expression(self) -> Expression:
        """CEL, in a map of its own. Only a file that has some needs its compiler."""
        from kubeloop.devcluster.kubelet.stages.expressions import Expression, WrongExpression

        fields = self.fields("expression")
        if "expression" not in fields:
            raise self.wrong("expression is missing")
        place = fields["expression"]
        try:
            return Expression(place.text().strip())
        except WrongExpression as error:
            raise place.wrong(f"CEL expression {place.text().strip()!r}: {error}") from None

    def user(self) -> str:
        """The user of an impersonation."""
        fields = self.fields("username")
        if "username" not in fields or not fields["username"].text():
            raise self.wrong("username is missing")
        return fields["username"].text()

    def template(self) -> Template:
        text = self.text()
        assert isinstance(self._node, yaml.ScalarNode)
        block = self._node.style in ("|", ">")
        trimmed = text.lstrip()
        first = self._node.start_mark.line + 1 + block + text[: len(text) - len(trimmed)].count("\n")
        try:
            return Template(trimmed.rstrip(), context=CONTEXT)
        except TemplateError as error:
            raise self.wrong(f"template: {error.problem}", line=first + error.line - 1) from None


def _stage(place: _Target) -> Stage:
    top = place.fields()
    if "apiVersion" not in top or "kind" not in top:
        raise place.wrong("apiVersion and kind are missing", hint=f"a stage has apiVersion {API_VERSION}, kind Stage")
    if (top["apiVersion"].text(), top["kind"].text()) != (API_VERSION, "Stage"):
        told = f"{top['apiVersion'].text()} {top['kind'].text()}"
        raise place.wrong(f"{told} is not supported", hint=f"a stage has apiVersion {API_VERSION}, kind Stage")
    top = place.fields("apiVersion", "kind", "metadata", "spec", "status")
    metadata = top["metadata"].fields() if "metadata" in top else {}
    if "name" not in metadata:
        raise place.wrong("metadata.name is missing")
    if "spec" not in top:
        raise place.wrong("spec is missing")
    spec = top["spec"].fields(
        "resourceRef", "selector", "weight", "weightFrom", "delay", "next", "steps", "immediateNextStage"
    )
    marks = metadata["annotations"].fields() if "annotations" in metadata else {}
    if ADD_TO in marks:
        marks[ADD_TO].one_of("built-in")
    if "selector" not in spec:
        raise place.wrong("spec.selector is missing: the stage would never be played")
    selector = spec["selector"].fields("matchLabels", "matchAnnotations", "matchExpressions")
    delay = (
        spec["delay"].fields("durationMilliseconds", "durationFrom", "jitterDurationMilliseconds", "jitterDurationFrom")
        if "delay" in spec
        else {}
    )
    jitter = _amount(delay, "jitterDurationMilliseconds", "jitterDurationFrom")
    api_version, kind = _kind(place, spec)
    requirements, conditions = [], []
    for each in selector["matchExpressions"].items() if "matchExpressions" in selector else ():
        found = _requirement(each)
        if isinstance(found, Requirement):
            requirements.append(found)
        else:
            conditions.append(found)
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
        steps=_steps(place, spec),
        immediate="immediateNextStage" in spec and spec["immediateNextStage"].boolean(),
        adds=ADD_TO in marks,
    )


def _kind(place: _Target, spec: dict[str, _Target]) -> tuple[str, str]:
    """The apiVersion and kind that the stage is for. That they are served shows when it is played."""
    if "resourceRef" not in spec:
        raise place.wrong("spec.resourceRef is missing")
    reference = spec["resourceRef"].fields("apiGroup", "kind")
    kind = reference["kind"].text() if "kind" in reference else ""
    group = reference["apiGroup"].text() if "apiGroup" in reference else "v1"
    if not kind:
        raise spec["resourceRef"].wrong("kind is missing")
    if not re.fullmatch(r"([a-z0-9.-]+/)?v[a-z0-9]+", group):
        hint = 'it is a group with a version: "v1", "apps/v1", "example.com/v1"'
        raise reference["apiGroup"].wrong(f"{group!r} is no apiVersion", hint=hint)
    return group, kind


def _requirement(place: _Target) -> Requirement | Expression:
    fields = place.fields("key", "operator", "values", "jq", "cel")
    if "cel" in fields:
        return fields["cel"].expression()
    if "jq" in fields:
        fields = fields["jq"].fields("key", "operator", "values")
    if "key" not in fields or "operator" not in fields:
        raise place.wrong("key and operator are needed")
    operator = fields["operator"].one_of("In", "NotIn", "Exists", "DoesNotExist")
    values = frozenset(each.text() for each in fields["values"].items()) if "values" in fields else frozenset()
    if bool(values) != (operator in ("In", "NotIn")):
        raise place.wrong(f"{operator} {'needs values' if not values else 'takes no values'}")
    return Requirement(fields["key"].query(), operator, values)  # type: ignore[arg-type] # checked by one_of


def _amount(fields: dict[str, _Target], constant: str, source: str) -> Amount | None:
    query = None
    if source in fields:
        told = fields[source].fields("expressionFrom", "jq", "cel")
        if "cel" in told:
            number = fields[constant].number() if constant in fields else None
            return Amount(number, None, told["cel"].expression())
        if "jq" in told:
            inner = told["jq"].fields("expression")
            told = {"expressionFrom": inner["expression"]} if "expression" in inner else {}
        if "expressionFrom" not in told:
            raise fields[source].wrong("expressionFrom is missing")
        query = told["expressionFrom"].query()
    number = fields[constant].number() if constant in fields else None
    return None if number is None and query is None else Amount(number, query)


def _steps(place: _Target, spec: dict[str, _Target]) -> tuple[Step, ...]:
    """`steps`, or `next` in KWOK's order: event, finalizers, patches, deletion."""
    if "steps" in spec:
        return tuple(_step(each, _default_patch(spec)) for each in spec["steps"].items())
    if "next" not in spec:
        raise place.wrong("spec.next is missing")
    told = spec["next"].fields(
        "event", "finalizers", "delete", "patches", "statusTemplate", "statusSubresource", "statusPatchAs"
    )
    steps = []
    if "event" in told:
        steps.append(Step(event=_event(told["event"])))
    if "finalizers" in told:
        steps.append(Step(finalizers=_finalizers(told["finalizers"])))
    if "patches" in told:
        steps += [Step(patch=_patch(each, _default_patch(spec))) for each in told["patches"].items()]
    elif "statusTemplate" in told and told["statusTemplate"].text().strip():
        subresource = told["statusSubresource"].text() if "statusSubresource" in told else "status"
        user = told["statusPatchAs"].user() if "statusPatchAs" in told else ""
        template = told["statusTemplate"].template()
        steps.append(Step(patch=Patch(template, _default_patch(spec), "status", subresource, user)))
    if "delete" in told and told["delete"].boolean():
        steps.append(Step(delete=True))
    return tuple(steps)


def _default_patch(spec: dict[str, _Target]) -> PatchType:
    """How patches are meant that do not say it: pods and nodes are patched strategically, all else is merged."""
    reference = spec["resourceRef"].fields("apiGroup", "kind")
    group = reference["apiGroup"].text() if "apiGroup" in reference else "v1"
    return "strategic" if group == "v1" and reference["kind"].text() in ("Pod", "Node") else "merge"


def _step(place: _Target, default: PatchType) -> Step:
    fields = place.fields("event", "finalizers", "delete", "patch", "apply")
    return Step(
        event=_event(fields["event"]) if "event" in fields else None,
        finalizers=_finalizers(fields["finalizers"]) if "finalizers" in fields else None,
        delete="delete" in fields and fields["delete"].boolean(),
        patch=_patch(fields["patch"], default) if "patch" in fields else None,
        apply=_apply(fields["apply"]) if "apply" in fields else None,
    )


def _event(place: _Target) -> tuple[str, str, str]:
    fields = place.fields("type", "reason", "message")
    type_ = fields["type"].one_of("Normal", "Warning") if "type" in fields else "Normal"
    return (
        type_,
        fields["reason"].text() if "reason" in fields else "",
        fields["message"].text() if "message" in fields else "",
    )


def _finalizers(place: _Target) -> Finalizers:
    fields = place.fields("add", "remove", "empty")

    def values(name: str) -> tuple[str, ...]:
        items = fields[name].items() if name in fields else []
        return tuple(each.fields("value")["value"].text() for each in items)

    return Finalizers(values("add"), values("remove"), "empty" in fields and fields["empty"].boolean())


def _apply(place: _Target) -> Apply:
    fields = place.fields("template", "subresource", "type", "impersonation")
    if "template" not in fields:
        raise place.wrong("template is missing")
    return Apply(
        template=fields["template"].template(),
        type=fields["type"].one_of("apply", "merge", "strategic") if "type" in fields else "apply",  # type: ignore[arg-type] # checked by one_of
        subresource=fields["subresource"].text() if "subresource" in fields else "",
        user=fields["impersonation"].user() if "impersonation" in fields else "",
    )


def _patch(place: _Target, default: PatchType) -> Patch:
    fields = place.fields("subresource", "root", "template", "type", "impersonation")
    if "template" not in fields:
        raise place.wrong("template is missing")
    return Patch(
        template=fields["template"].template(),
        type=fields["type"].one_of("json", "merge", "strategic") if "type" in fields else default,  # type: ignore[arg-type] # checked by one_of
        root=fields["root"].text() if "root" in fields else "",
        subresource=_subresource(fields, default),
        user=fields["impersonation"].user() if "impersonation" in fields else "",
    )


def _subresource(fields: dict[str, _Target], default: PatchType) -> str:
    """Of pods and nodes the status, or the object itself, is changed."""
    if "subresource" not in fields:
        return ""
    place = fields["subresource"]
    return place.one_of("", "status") if default == "strategic" else place.text()
