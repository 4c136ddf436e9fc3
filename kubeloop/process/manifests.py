"""Manifests: reading them from files, and applying them as `kubectl apply` does.

All documents are read and checked before the first one is sent, so that a typing error in the last file does not leave
half an application behind.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from kubeloop.kube import yaml
from kubeloop.kube.client.api_client import ApiClient, PatchType
from kubeloop.kube.client.discovery import ResourceMap
from kubeloop.kube.errors import ApiError, NotFound, ServerUnreachable
from kubeloop.kube.objects.resources import POD_GROUPS, PODS, Resource
from kubeloop.kube.user_error import UserError
from kubeloop.tracing.recording.apply_recorder import ApplyRecorder
from kubeloop.tracing.spans.traceparent import TRACEPARENT_ANNOTATION

Outcome = Literal["created", "configured", "unchanged"]

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_MAX_BYTES = (
    256 * 1024 - 1024
)  # of an object's annotations, less some for those of the trace and of LAST_APPLIED's name
_FIELD_MANAGER = {"fieldManager": "kubeloop", "fieldValidation": "Strict"}
_BOOKKEEPING = frozenset({"managedFields", "resourceVersion", "generation"})
_TRACED = frozenset(
    {
        "deployments.apps",
        "replicasets.apps",
        "replicationcontrollers",
        "statefulsets.apps",
        "daemonsets.apps",
        "jobs.batch",
        "cronjobs.batch",
    }
)
_WRONG_TYPE = "failed to create typed patch object"
_SUFFIXES = (".yaml", ".yml", ".json")
_SPACE = re.compile(r"\s*")
_URL = re.compile(r"(https?):/+(.+)")  # a Path has one slash after the scheme
_RENDERED = {  # file names of folders that are rendered to manifests, and the command for it
    "kustomization.yaml": "kubectl kustomize {}",
    "kustomization.yml": "kubectl kustomize {}",
    "Kustomization": "kubectl kustomize {}",
    "Chart.yaml": "helm template {}",
}


class Manifest(msgspec.Struct, frozen=True):
    """One object as a file has it. `source` names file and document, for errors."""

    source: str
    body: dict[str, Any]

    @property
    def api_version(self) -> str:
        return str(self.body["apiVersion"])

    @property
    def kind(self) -> str:
        return str(self.body["kind"])

    @property
    def name(self) -> str:
        return str(self.body["metadata"].get("name", ""))


def read_manifests(paths: Sequence[Path]) -> list[Manifest]:
    """Return all objects of `paths` (files, folders without their subfolders, "-" for stdin), in order.

    Lists are expanded. Raises UserError for a file that cannot be read, is not YAML, or lacks apiVersion, kind or name.
    """
    manifests = [
        manifest for path in paths for source, text in _texts(path) for manifest in parse_manifests(source, text)
    ]
    if paths and not manifests:
        raise UserError(f"no objects in {', '.join(map(str, paths))}", hint="each document needs apiVersion and kind")
    return manifests


async def apply(
    client: ApiClient,
    manifests: Iterable[Manifest],
    *,
    default_namespace: str = "default",
    resources: ResourceMap | None = None,
    trace: ApplyRecorder | None = None,
    on_warning: Callable[[str], None] | None = None,
    remain: bool = True,
    dry_run: bool = False,
) -> list[tuple[str, Outcome]]:
    """Apply the manifests as `kubectl apply` does, namespaces first.

    CustomResourceDefinitions precede namespaces if there are objects of the kinds that they define.

    resources: result of an earlier discovery; discovery is repeated if it lacks a kind. trace: records a span for each
    request, and the reconciles of workloads link to it. on_warning: called once for each warning of the server.
    remain: False if the cluster and its objects end with an error. dry_run: the server validates and stores nothing.
    Returns ("deployment.apps/web", "created") per object, in the order of application. Raises UserError with the
    server's message for the first object that is rejected, and the objects that were applied before it.
    """
    manifests = list(manifests)
    if on_warning is not None:
        client = client.with_warnings(_once(on_warning))
    if resources is None or any(resources.find(manifest.api_version, manifest.kind) is None for manifest in manifests):
        resources = await ResourceMap.discover(client)
    outcomes: list[tuple[str, Outcome]] = []
    defined_kinds = {defined for manifest in manifests for defined in _defined_kinds(manifest)}
    if any(resources.find(*kind) is None for kind in _kinds(manifests) & defined_kinds):
        for manifest in manifests:
            if (manifest.api_version, manifest.kind) not in defined_kinds:
                _resource_of(manifest, resources)  # raises before the first request is sent
        definitions = [manifest for manifest in manifests if manifest.kind == _DEFINITION]
        outcomes += await apply(
            client,
            definitions,
            default_namespace=default_namespace,
            resources=resources,
            remain=remain,
            dry_run=dry_run,
        )
        manifests = [manifest for manifest in manifests if manifest.kind != _DEFINITION]
        resources = await ResourceMap.discover(client)
    resolved = [(manifest, _resource_of(manifest, resources)) for manifest in manifests]
    resolved.sort(key=lambda pair: pair[1].group_resource != "namespaces")  # stable: otherwise in file order
    try:
        for manifest, resource in resolved:
            outcomes.append(await _apply_traced(client, manifest, resource, default_namespace, trace, dry_run))
    except UserError as error:
        raise _with_applied(error, outcomes, remain=remain) from None
    finally:
        if trace is not None:
            trace.finish()
    return outcomes


def _with_applied(error: UserError, outcomes: Sequence[tuple[str, Outcome]], *, remain: bool) -> UserError:
    """Return the error of a rejected object with the objects that were applied before it."""
    if not outcomes:
        return error
    applied = "".join(f"\n    {title} {outcome}" for title, outcome in outcomes)
    stay = "these objects stay, and the next run continues" if remain else "--data-dir keeps objects for the next run"
    return UserError(f"{error}\n  before it were applied:{applied}", hint=f"{error.hint}; {stay}")


def applied_pods(manifests: Iterable[Manifest], outcomes: Iterable[tuple[str, Outcome]]) -> set[str]:
    """Return "namespace/name" of the Pods among the manifests, also of those with a generated name, after apply()."""
    namespaces = [manifest.body["metadata"].get("namespace") for manifest in manifests if manifest.kind == PODS.kind]
    names = [title.removeprefix("pod/") for title, _ in outcomes if title.startswith("pod/")]
    return {f"{namespace or 'default'}/{name}" for namespace, name in zip(namespaces, names, strict=True)}


def _once(on_warning: Callable[[str], None]) -> Callable[[str], None]:
    """Return `on_warning` without repeated warnings, as kubectl prints them."""
    reported: set[str] = set()

    def report(warning: str) -> None:
        if warning not in reported:
            reported.add(warning)
            on_warning(warning)

    return report


_DEFINITION = "CustomResourceDefinition"


def _kinds(manifests: Iterable[Manifest]) -> set[tuple[str, str]]:
    return {(manifest.api_version, manifest.kind) for manifest in manifests}


def _defined_kinds(manifest: Manifest) -> set[tuple[str, str]]:
    """Return apiVersion and kind of the custom resources that a CustomResourceDefinition defines, if it is readable."""
    spec = manifest.body.get("spec")
    if manifest.kind != _DEFINITION or not isinstance(spec, dict) or not isinstance(spec.get("names"), dict):
        return set()
    versions = spec.get("versions")
    names = (
        [version.get("name") for version in versions if isinstance(version, dict)] if isinstance(versions, list) else []
    )
    return {(f"{spec.get('group')}/{name}", str(spec["names"].get("kind"))) for name in names}


def last_applied(body: Mapping[str, Any]) -> str:
    """Return the value of kubectl's last-applied annotation: sorted, HTML-escaped as Go does it, with a final
    newline."""
    text = msgspec.json.encode(body, order="sorted").decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text + "\n"


async def _apply_traced(
    client: ApiClient,
    manifest: Manifest,
    resource: Resource[Any],
    default_namespace: str,
    trace: ApplyRecorder | None,
    dry_run: bool,
) -> tuple[str, Outcome]:
    if trace is None:
        return await _apply_one(client, manifest, resource, default_namespace, "", dry_run=dry_run)
    kind, name = str(manifest.body["kind"]), manifest.name
    namespace = str(manifest.body["metadata"].get("namespace") or default_namespace) if resource.namespaced else ""
    is_workload = resource.group_resource in _TRACED
    traceparent = trace.begin(kind.lower(), f"{namespace}/{name}") if is_workload and name else trace.begin()
    annotation = traceparent if is_workload and trace.annotates else ""
    try:
        title, outcome = await _apply_one(client, manifest, resource, default_namespace, annotation)
    except (UserError, ServerUnreachable) as error:
        failed = "refused" if isinstance(error, UserError) else "unknown"
        trace.end(traceparent, kind, namespace, name, failed, str(error))
        raise
    trace.end(traceparent, kind, namespace, title.partition("/")[2], outcome)
    return title, outcome


async def _apply_one(
    client: ApiClient,
    manifest: Manifest,
    resource: Resource[Any],
    default_namespace: str,
    trace_annotation: str,
    *,
    dry_run: bool = False,
) -> tuple[str, Outcome]:
    metadata = manifest.body["metadata"]
    namespace = str(metadata.get("namespace") or default_namespace) if resource.namespaced else ""
    annotations = {name: value for name, value in (metadata.get("annotations") or {}).items() if name != LAST_APPLIED}
    metadata = {**metadata, "annotations": annotations, **({"namespace": namespace} if namespace else {})}
    applied = last_applied({**manifest.body, "metadata": metadata})
    # With the annotation, a later `kubectl apply` of the same file detects fields that were removed from it. It has no
    # room on some CustomResourceDefinitions, which `kubectl apply --server-side` creates without it.
    if len(applied.encode()) + sum(len(f"{name}{value}".encode()) for name, value in annotations.items()) < _MAX_BYTES:
        annotations = {**annotations, LAST_APPLIED: applied}
    if trace_annotation:
        # an annotation in the manifest takes precedence
        annotations = {TRACEPARENT_ANNOTATION: trace_annotation, **annotations}
    body = {**manifest.body, "metadata": {**metadata, "annotations": annotations}}
    prefix = f"{resource.singular}{'.' + resource.group if resource.group else ''}/"
    title = f"{prefix}{manifest.name}"
    query = _FIELD_MANAGER | ({"dryRun": "All"} if dry_run else {})
    try:
        if not manifest.name:  # generateName: every apply creates another object
            created = await client.create(resource, body, namespace, query=query)
            return f"{prefix}{created['metadata']['name']}", "created"
        before = await _content_or_none(client, resource, manifest.name, namespace)
        query["force"] = "true"
        after = await client.patch(resource, manifest.name, body, PatchType.APPLY, namespace, query=query)
    except ApiError as error:
        if error.message.startswith(_WRONG_TYPE):  # with code 500
            hint = "correct the field in the manifest and try again; kubectl explain shows its type"
        elif error.code >= 500 or error.code == 429:
            hint = "this is an error of the server, not of the manifest; try again"
        else:
            hint = "correct the manifest and try again"
        raise UserError(f"{manifest.source}: {error.message}", hint=hint) from None
    if before is None:
        return title, "created"
    return title, "unchanged" if _content(after) == before else "configured"


async def _content_or_none(
    client: ApiClient, resource: Resource[Any], name: str, namespace: str
) -> dict[str, Any] | None:
    try:
        return _content(await client.get(resource, name, namespace))
    except NotFound:
        return None


def _content(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object without the fields that change on every apply."""
    metadata = {name: value for name, value in obj["metadata"].items() if name not in _BOOKKEEPING}
    annotations = metadata.get("annotations") or {}
    metadata["annotations"] = {name: value for name, value in annotations.items() if name != TRACEPARENT_ANNOTATION}
    return {**obj, "metadata": metadata, "status": None}


def _resource_of(manifest: Manifest, resources: ResourceMap) -> Resource[dict[str, Any]]:
    resource = resources.find(manifest.api_version, manifest.kind)
    if resource is not None:
        return resource
    hint = resources.suggestion(manifest.kind) or "the server does not serve this kind; remove the document"
    if manifest.api_version == POD_GROUPS.api_version:
        hint = "--gang-scheduling of a development cluster enables Workload and PodGroup"
    raise UserError(
        f'{manifest.source}: no matches for kind "{manifest.kind}" in version "{manifest.api_version}"', hint=hint
    )


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    if url := _URL.fullmatch(str(path)):
        address = f"{url[1]}://{url[2]}"
        raise UserError(
            f"{address} is a URL; manifests are read from files",
            hint=f"curl -fsSL {address} downloads it: pipe it into kubeloop up -f -, or save it to a file",
        )
    try:
        if str(path) == "-":
            yield "stdin", sys.stdin.buffer.read().decode("utf-8")
        elif path.is_dir():
            files = sorted(path.iterdir())
            for file in files:
                _check_is_manifest(file)
            for file in files:
                if file.suffix in _SUFFIXES and file.is_file():
                    yield str(file), file.read_text("utf-8")
        else:
            _check_is_manifest(path)
            yield str(path), path.read_text("utf-8")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}", hint="check the path given to -f") from None
    except UnicodeDecodeError:
        raise UserError(
            f"{'stdin' if str(path) == '-' else path} is not text", hint="a manifest is YAML or JSON in UTF-8"
        ) from None


def _check_is_manifest(path: Path) -> None:
    """Raise UserError for the main file of a kustomization or a Helm chart, which has to be rendered first."""
    if path.name in _RENDERED and path.is_file():
        command = _RENDERED[path.name].format(path.parent)
        raise UserError(
            f"{path} is not a manifest: its folder has to be rendered first",
            hint=f"{command} writes the manifests: pipe them into kubeloop up -f -, or save them to a file",
        )


def parse_manifests(source: str, text: str) -> Iterator[Manifest]:
    """Yield all objects of a text in YAML or JSON, or of a stream of JSON objects.

    `source` identifies the text in errors. Raises UserError.
    """
    documents = _documents(source, text)
    for number, document in enumerate(documents, start=1):
        if document is None:
            continue
        place = source if len(documents) == 1 else f"{source}, document {number}"
        yield from objects_of(place, document)


def _documents(source: str, text: str) -> list[Any]:
    try:
        documents, repeated = yaml.read_all(text)
    except yaml.InvalidYaml as error:
        # JSON that is not YAML: one object after the other, or "\ud83d\ude00"
        documents, repeated, problem = _json_stream(text)
        if problem and documents and isinstance(documents[0], dict):
            raise UserError(f"{source}: {problem}", hint="this is not valid JSON") from None
        if problem:
            raise UserError(f"{source}: {error.place}", hint="this is not valid YAML") from None
    if repeated:
        raise UserError(f"{source}: {repeated[0]}", hint="remove one of the two")
    return documents


def _json_stream(text: str) -> tuple[list[Any], list[str], str]:
    """Return the values of a JSON text, which only space separates, messages about keys that are set twice, and the
    error at which reading ended; "" for none."""
    repeated: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> None:
        counts = Counter(key for key, _ in pairs)
        repeated.extend(f'key "{key}" already set in map' for key, count in counts.items() if count > 1)

    documents: list[Any] = []
    decoder = json.JSONDecoder(object_pairs_hook=unique)
    start = _space_end(text, 0)
    while start < len(text):
        try:
            end = decoder.raw_decode(text, start)[1]
            documents.append(msgspec.json.decode(text[start:end]))
        except json.JSONDecodeError as error:
            return documents, repeated, f"line {error.lineno}, column {error.colno}: {error.msg}"
        except (msgspec.DecodeError, RecursionError) as error:
            return documents, repeated, f"line {text.count(chr(10), 0, start) + 1}: {error}"
        start = _space_end(text, end)
    return documents, repeated, ""


def _space_end(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match is not None else position


def objects_of(source: str, document: Any) -> Iterator[Manifest]:
    """Yield the object, or those of a List. Raises UserError if it is not an object with a name."""
    if not isinstance(document, dict):
        raise UserError(
            f"{source}: not a Kubernetes object but a {type(document).__name__}", hint="see kubectl explain"
        )
    for field in ("apiVersion", "kind"):
        if not isinstance(document.get(field), str) or not document[field]:
            raise UserError(f"{source}: {field} not set", hint=f"every manifest needs {field}")
    if document["kind"].endswith("List") and isinstance(document.get("items", ""), list | None):
        for number, item in enumerate(document["items"] or (), start=1):  # Go writes null for an empty list
            is_typed = document["kind"] != "List" and isinstance(
                item, dict
            )  # Go writes such items without these fields
            fields = {"apiVersion": document["apiVersion"], "kind": document["kind"].removesuffix("List")}
            yield from objects_of(f"{source}, item {number}", fields | item if is_typed else item)
        return
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
        raise UserError(f"{source}: metadata.name not set", hint=f"give the {document['kind']} a name")
    yield Manifest(source, document)
