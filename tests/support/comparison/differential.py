"""Differential test of two API servers: the same requests to both, and a report of the different responses.

    python -m support.comparison.differential --kind Pod --count 2000 --seed 1 --real KUBECONFIG --ours KUBECONFIG

sends mutations of the kind's valid objects (tests/support/valid/*.yaml) with dryRun=All to a kube-apiserver and to
`kubeloop apiserver`. It prints the differences in status, reason, message, causes, warnings and, if both accept, in the
returned object, grouped by field, most frequent first. `--verb update` creates each valid object and replaces it;
`--verb status`, `resize`, ... replaces it through that subresource. `--count 0` sends every mutation.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.apiserver.api_response import ApiResponse
from support.apiserver.http_api import HttpApi
from support.comparison.mutations import Mutation, combined, mutations, sends_empty
from support.objects.token_volumes import masked_token_volumes
from support.objects.yaml_files import read_documents

JSON = dict[str, Any]
VALID = Path(__file__).parents[1] / "valid"
SERVER_METADATA = ("uid", "resourceVersion", "managedFields", "creationTimestamp", "selfLink")


def comparable(response: ApiResponse) -> JSON:
    """Return a response without the values that each server generates; of a Status, its separate parts."""
    if type(response.content) is not dict:
        return {"status": response.status, "text": response.content}
    if response.status >= 400:
        details = response.content.get("details") or {}
        return {
            "status": response.status,
            "reason": response.content.get("reason"),
            "message": _without_allocated(_INTERNALS.sub("", response.content.get("message") or "")),
            "causes": [
                _without_allocated(f"{cause.get('reason')} {cause.get('field')} {cause.get('message')}")
                for cause in details.get("causes", ())
            ],
            "details": {
                name: _UID.sub("UID", str(value)) for name, value in details.items() if name not in ("causes", "uid")
            },
            "warnings": response.warnings,
        }
    return {
        "status": response.status,
        "object": without_server_fields(response.content),
        "warnings": response.warnings,
    }


_INTERNALS = re.compile(
    r' in scheme "[^"]*"|(?<=UID in object meta: )[0-9a-f-]{36}',
    re.DOTALL,
)
"""Internals of kube-apiserver in messages: locations in its code and keys of etcd; and UIDs."""


_ALLOCATED = re.compile(r"\b10\.0\.0\.\d+\b"), re.compile(r'(?<=odePort": )3[0-2]\d{3}\b')
"""Addresses and node ports of Services, which a server allocates at random."""


_UID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


def _without_allocated(text: str) -> str:
    text = _UID.sub("UID", text)
    return _ALLOCATED[1].sub("30000", _ALLOCATED[0].sub("10.0.0.0", text))


def without_server_fields(obj: JSON) -> JSON:
    """Return a copy without UIDs, versions, times and randomly allocated values."""
    metadata = obj.get("metadata") or {}
    text = json.dumps({**obj, "metadata": {k: v for k, v in metadata.items() if k not in SERVER_METADATA}})
    if metadata.get("uid"):
        text = text.replace(metadata["uid"], "UID")
    text = re.sub(r'"20[0-9-]{8}T[0-9:.]+Z"', lambda m: m[0] if m[0].startswith('"2024') else '"NOW"', text)
    result: JSON = json.loads(_without_allocated(text) if obj.get("kind") == "Service" else text)
    if metadata.get("generateName") or _UID.fullmatch(metadata.get("name", "")):
        result["metadata"]["name"] = "GENERATED"
    masked: JSON = masked_token_volumes(result)
    return masked


@dataclass(frozen=True)
class Request:
    """A request for both servers. Reports show `description` and group differences by `field`."""

    method: str
    path: str
    body: Any
    description: str
    field: str = ""
    content_type: str = "application/json"


@dataclass
class Difference:
    request: Request
    real: JSON
    ours: JSON

    @property
    def aspects(self) -> list[str]:
        return [name for name in {**self.real, **self.ours} if self.real.get(name) != self.ours.get(name)]

    def lines(self) -> Iterable[str]:
        yield self.request.description
        if not self.aspects:
            yield f"    both refuse it: {self.real.get('message')}"
        for name in self.aspects:
            real, ours = self.real.get(name), self.ours.get(name)
            if name == "object" and type(real) is dict and type(ours) is dict:
                for path, one, other in _different_leaves(real, ours, ""):
                    yield f"    object{path}: real {_short(one)}  ours {_short(other)}"
            elif name == "causes" and real is not None and ours is not None:
                yield from (f"    cause only real: {_short(cause)}" for cause in real if cause not in ours)
                yield from (f"    cause only ours: {_short(cause)}" for cause in ours if cause not in real)
                if sorted(real) == sorted(ours):
                    yield f"    order of causes: real {real} ours {ours}"
            elif not (name == "message" and "causes" in self.aspects):
                yield f"    {name}: real {_short(real)}"
                yield f"    {' ' * len(name)}  ours {_short(ours)}"


def _short(value: Any) -> str:
    text = value if type(value) is str else json.dumps(value)
    return text if len(text) <= 420 else f"{text[:300]} ... {text[-110:]}"


def _different_leaves(one: Any, other: Any, path: str) -> Iterable[tuple[str, Any, Any]]:
    if type(one) is dict and type(other) is dict:
        for key in {**one, **other}:
            yield from _different_leaves(one.get(key), other.get(key), f"{path}.{key}")
    elif type(one) is list and type(other) is list and len(one) == len(other):
        for i, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _different_leaves(left, right, f"{path}[{i}]")
    elif one != other:
        yield path, one, other


@dataclass
class Comparison:
    """The result of sending requests to both servers. accepted: the number that kube-apiserver accepted."""

    requests: int = 0
    accepted: int = 0
    differences: list[Difference] = field(default_factory=list)

    def report(self, examples: int = 3, groups: int = 1000) -> str:
        by_field: dict[str, list[Difference]] = defaultdict(list)
        for difference in self.differences:
            by_field[difference.request.field].append(difference)
        lines = [f"{self.requests} requests, {self.accepted} accepted by the real one, {len(self.differences)} differ"]
        for name, differences in sorted(by_field.items(), key=lambda item: -len(item[1]))[:groups]:
            lines.append(f"\n== {name}: {len(differences)}")
            for difference in differences[:examples]:
                lines.extend(difference.lines())
        return "\n".join(lines)


def compare(real: HttpApi, ours: HttpApi, requests: Sequence[Request]) -> Comparison:
    """Send the requests to both servers concurrently, to each in order."""

    def responses(server: HttpApi) -> list[JSON]:
        versions = _Versions(server)
        return [comparable(server.request(r.method, r.path, versions.resolve(r), r.content_type)) for r in requests]

    with ThreadPoolExecutor(2) as executor:
        real_responses, our_responses = executor.map(responses, (real, ours))
    comparison = Comparison(len(requests))
    for request, first, our_response in zip(requests, real_responses, our_responses, strict=True):
        real_response = our_response if _differs_in_random_order(real, request, first, our_response) else first
        comparison.accepted += real_response["status"] < 300
        if real_response != our_response or (request.field == "(unchanged)" and real_response["status"] >= 300):
            comparison.differences.append(Difference(request, real_response, our_response))
    return comparison


CURRENT = "(current)"
"""Placeholder for the resourceVersion of an update: the object's current version on the server."""


class _Versions:
    """The values of CURRENT on one server."""

    def __init__(self, server: HttpApi) -> None:
        self._server = server
        self._versions: dict[str, str] = {}

    def resolve(self, request: Request) -> Any:
        """Return the body with CURRENT replaced."""
        body = request.body
        metadata = body.get("metadata") if type(body) is dict else None
        if type(metadata) is not dict or metadata.get("resourceVersion") != CURRENT:
            return body
        path = request.path.partition("?")[0]
        if path not in self._versions:
            self._versions[path] = self._server.request("GET", path).content["metadata"]["resourceVersion"]
        return {**body, "metadata": {**metadata, "resourceVersion": self._versions[path]}}


_ATTEMPTS = 40


def _differs_in_random_order(real: HttpApi, request: Request, first: JSON, ours: JSON) -> bool:
    """Return True if the responses differ in an order that varies when kube-apiserver gets the request again."""
    if not same_but_for_order(first, ours):
        return False
    body = _Versions(real).resolve(request)
    return any(
        comparable(real.request(request.method, request.path, body, request.content_type)) != first
        for _ in range(0 if first == ours else _ATTEMPTS)
    )


def same_but_for_order(one: JSON, other: JSON) -> bool:
    """Compare responses without the order of causes: Go iterates over maps in random order."""
    unordered = ("causes", "message", "warnings")
    return (
        one.get("status") == other.get("status")
        and sorted(one.get("causes", ())) == sorted(other.get("causes", ()))
        and sorted(one.get("warnings", ())) == sorted(other.get("warnings", ()))
        and {k: v for k, v in one.items() if k not in unordered}
        == {k: v for k, v in other.items() if k not in unordered}
    )


@dataclass(frozen=True)
class ValidObjects:
    """A kind that tests/support/valid declares: its path, its type and its valid objects.

    under: the path that is mutated, () for all. without: fields ("spec.template.spec") that are not mutated, because
    another kind's rules apply to them. versioned: True if updates need a resourceVersion.
    """

    kind: str
    type: str
    path: str
    objects: tuple[JSON, ...]
    under: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    versioned: bool = False


def valid_objects(kind: str) -> ValidObjects:
    """Return the valid objects of a kind, or of a workload kind with pod templates ("Job/template").

    Raises KeyError if no file declares the kind.
    """
    for path in sorted(VALID.glob("*.yaml")):
        for document in read_documents(path):
            if document.get("kind") == kind:
                objects = tuple({"kind": kind, **obj} for obj in document["objects"])
                return ValidObjects(
                    kind,
                    document["type"],
                    document["path"],
                    objects,
                    tuple(document.get("under", ())),
                    tuple(document.get("without", ())),
                    document.get("versioned", False),
                )
            if document.get("template") == kind:
                return _with_templates(document)
    raise KeyError(f"no file in {VALID} declares {kind}")


def _with_templates(declaration: JSON) -> ValidObjects:
    """Return workloads whose templates are the valid Pods, with the restart policy that the workload requires."""
    objects, at = [], declaration["at"]
    for pod in valid_objects("Pod").objects:
        spec = {**pod["spec"], "restartPolicy": declaration.get("restartPolicy", "Always")}
        if not spec["restartPolicy"]:
            spec = pod["spec"]
        elif spec["restartPolicy"] == "Always":
            spec.pop("activeDeadlineSeconds", None)  # invalid for pods that restart always
        metadata = {"labels": {"app": "web"}}
        if "annotations" in pod["metadata"]:
            metadata["annotations"] = pod["metadata"]["annotations"]
        workload: JSON = json.loads(json.dumps(declaration["around"]))
        workload["metadata"] = {"name": f"{pod['metadata']['name']}-template"}
        parent = workload
        for name in at[:-1]:
            parent = parent[name]
        parent[at[-1]] = {"metadata": metadata, "spec": spec}
        objects.append(workload)
    return ValidObjects(declaration["template"], declaration["type"], declaration["path"], tuple(objects), tuple(at))


def sampled_mutations(
    kind: ValidObjects, base: JSON, count: int, rng: random.Random, under: tuple[str, ...]
) -> list[Mutation]:
    """Return `count` mutations of an object, a third of them combinations; 0: every single mutation."""
    single = [
        mutation
        for mutation in mutations(kind.type, base, under=under or kind.under)
        # generated names are random
        if not (mutation.path[0] == "metadata" and "generateName" in (mutation.changed.get("metadata") or ()))
        and not any(f"{mutation.field}.".startswith(f"{field}.") for field in kind.without)
    ]
    if not count:
        return single
    pairs = combined(single, base, rng, count // 3)
    return [*rng.sample(single, min(len(single), count - len(pairs))), *pairs]


def create_requests(
    kind: ValidObjects, count: int, rng: random.Random, *, under: tuple[str, ...] = ()
) -> list[Request]:
    """Return POSTs of about `count` mutated objects, distributed over the kind's valid ones."""
    count_per_object, path, requests = -(-count // len(kind.objects)), f"{kind.path}?dryRun=All", []
    for base in kind.objects:
        name = base["metadata"]["name"]
        requests.append(Request("POST", path, base, f"create {name}, which must be valid", "(unchanged)"))
        requests += [
            Request("POST", path, m.changed, f"create {name}: {m}", m.field)
            for m in sampled_mutations(kind, base, count_per_object, rng, under)
        ]
    return requests


def update_requests(
    kind: ValidObjects, count: int, rng: random.Random, *, subresource: str = "", under: tuple[str, ...] = ()
) -> list[Request]:
    """Return PUTs of mutations of existing objects."""
    count_per_object, requests = -(-count // len(kind.objects)), []
    for base in kind.objects:
        version = {"resourceVersion": CURRENT} if kind.versioned else {}
        path = f"{kind.path}/{base['metadata']['name']}{'/' + subresource if subresource else ''}?dryRun=All"
        requests += [
            Request("PUT", path, m.changed, f"update {base['metadata']['name']} {subresource}: {m}", m.field)
            for m in sampled_mutations(kind, _with_metadata(base, version), count_per_object, rng, under)
        ]
    return requests


def _with_metadata(obj: JSON, metadata: JSON) -> JSON:
    return {**obj, "metadata": {**obj["metadata"], **metadata}}


def create_valid_objects(server: HttpApi, kind: ValidObjects) -> None:
    """Create the kind's valid objects with their status, unless they exist. Raises AssertionError if refused."""
    for obj in kind.objects:
        response = server.request("POST", kind.path, obj)
        assert response.status in (201, 409), response.content
        if "status" in obj and response.status == 201:
            response = server.request("PUT", f"{kind.path}/{obj['metadata']['name']}/status", obj)
            assert response.status == 200, response.content


def delete_valid_objects(server: HttpApi, kind: ValidObjects) -> None:
    """Delete the kind's valid objects, if they exist, with their finalizers removed."""
    for obj in kind.objects:
        path = f"{kind.path}/{obj['metadata']['name']}"
        server.request("DELETE", f"{path}?gracePeriodSeconds=0")
        server.request("PATCH", path, {"metadata": {"finalizers": None}}, "application/merge-patch+json")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", type=Path, required=True, help="kubeconfig of a kube-apiserver")
    parser.add_argument("--ours", type=Path, required=True, help="kubeconfig of kubeloop apiserver --nodes=0")
    parser.add_argument("--kind", action="append", required=True)
    parser.add_argument("--verb", default="create", help="create, update, or a subresource to update")
    parser.add_argument("--count", type=int, default=1000, help="requests per kind; 0: all single mutations")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--under", default="", help="mutate only this field, e.g. spec.volumes")
    parser.add_argument("--no-empty", action="store_true", help="send no empty list or map: see sends_empty")
    parser.add_argument("--any-order", action="store_true", help="ignore the order of causes, also in messages")
    parser.add_argument("--examples", type=int, default=3, help="differences shown per field")
    options = parser.parse_args(arguments)
    real, ours = (HttpApi.from_kubeconfig(path) for path in (options.real, options.ours))
    under, differences = tuple(filter(None, options.under.split("."))), 0
    for name in options.kind:
        kind, rng = valid_objects(name), random.Random(options.seed)
        if options.verb == "create":
            for server in (real, ours):
                delete_valid_objects(server, kind)
            requests = create_requests(kind, options.count, rng, under=under)
        else:
            for server in (real, ours):
                create_valid_objects(server, kind)
            subresource = "" if options.verb == "update" else options.verb
            requests = update_requests(kind, options.count, rng, subresource=subresource, under=under)
        if options.no_empty:
            requests = [request for request in requests if not sends_empty(kind.type, request.body)]
        comparison = compare(real, ours, requests)
        for server in (real, ours):  # LimitRanges and quotas would affect the next kind
            delete_valid_objects(server, kind)
        if options.any_order:
            comparison.differences = [d for d in comparison.differences if not same_but_for_order(d.real, d.ours)]
        print(f"{name} {options.verb}: {comparison.report(options.examples)}\n")
        differences += len(comparison.differences)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
