"""Two API servers side by side: the same requests to both, and how their answers differ.

    python -m support.differential --kind Pod --count 2000 --seed 1 --real KUBECONFIG --ours KUBECONFIG

sends mutations of the kind's valid objects (tests/support/valid/*.yaml) with dryRun=All to a kube-apiserver and to
`kubeloop apiserver`, and prints the differences in status, reason, message, causes, warnings and, where both accept, in
the object that comes back; grouped by field, commonest first. `--verb update` creates each valid object for real and
replaces it; `--verb status`, `resize`, ... does so through that subresource. `--count 0` sends every mutation there is.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import re
import ssl
import sys
from base64 import b64decode
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from support.mutations import Mutation, combined, mutations, sends_empty

JSON = dict[str, Any]
VALID = Path(__file__).parent / "valid"
_SERVERS_OWN = ("uid", "resourceVersion", "managedFields", "creationTimestamp", "selfLink")


class ApiServer:
    """One API server over HTTP(S); `ask` keeps one connection and is for one thread."""

    def __init__(self, url: str, token: str = "", trust: ssl.SSLContext | None = None) -> None:
        self._address, self._token, self._trust = urlsplit(url), token, trust
        self._connection = self._connect()

    @classmethod
    def from_kubeconfig(cls, path: Path) -> ApiServer:
        config = yaml.safe_load(path.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        trust = None
        if cluster["server"].startswith("https"):
            ca = cluster.get("certificate-authority-data")
            trust = ssl.create_default_context(
                cafile=cluster.get("certificate-authority"), cadata=b64decode(ca).decode() if ca else None
            )
        return cls(cluster["server"], user.get("token", ""), trust)

    def _connect(self) -> http.client.HTTPConnection:
        assert self._address.hostname
        if self._address.scheme == "https":
            return http.client.HTTPSConnection(self._address.hostname, self._address.port, context=self._trust)
        return http.client.HTTPConnection(self._address.hostname, self._address.port)

    def ask(
        self, verb: str, path: str, body: Any = None, content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Answer:  # fmt: skip
        """`body`: a value that becomes JSON, or the text itself."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content_type, "Accept": accept}
        data = None if body is None else (body if type(body) is str else json.dumps(body)).encode()
        try:
            self._connection.request(verb, path, data, headers)
            response = self._connection.getresponse()
        except (http.client.HTTPException, ConnectionError):  # a server may close a connection between two requests
            self._connection.close()
            self._connection = self._connect()
            self._connection.request(verb, path, data, headers)
            response = self._connection.getresponse()
        text = response.read()
        try:
            content = json.loads(text)
        except ValueError:
            content = text.decode(errors="replace")
        warnings = tuple(response.headers.get_all("Warning") or ())
        return Answer(response.status, content, warnings, response.getheader("Content-Type", ""))

    def close(self) -> None:
        self._connection.close()


@dataclass(frozen=True)
class Answer:
    status: int
    content: Any
    warnings: tuple[str, ...] = ()
    media_type: str = ""

    def comparable(self) -> JSON:
        """Without what each server makes up by itself; a Status as what its parts say."""
        if type(self.content) is not dict:
            return {"status": self.status, "text": self.content}
        if self.status >= 400:
            details = self.content.get("details") or {}
            return {
                "status": self.status,
                "reason": self.content.get("reason"),
                "message": _without_chosen(_INSIDE.sub("", self.content.get("message") or "")),
                "causes": [
                    _without_chosen(f"{c.get('reason')} {c.get('field')} {c.get('message')}")
                    for c in details.get("causes", ())
                ],
                "details": {
                    name: _UID.sub("UID", str(value))
                    for name, value in details.items()
                    if name not in ("causes", "uid")
                },
                "warnings": self.warnings,
            }
        return {"status": self.status, "object": without_server_fields(self.content), "warnings": self.warnings}


_INSIDE = re.compile(
    r' in scheme "[^"]*"|StorageError: invalid object, .*? AdditionalErrorMsg: |(?<=UID in object meta: )[0-9a-f-]{36}',
    re.DOTALL,
)
"""What kube-apiserver tells of its own inside, a place in its code, a key in etcd; and uids."""


_CHOSEN = re.compile(r"\b10\.0\.0\.\d+\b"), re.compile(r'(?<=odePort": )3[0-2]\d{3}\b')
"""Addresses and node ports of Services, which a server chooses by chance."""


_UID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


def _without_chosen(text: str) -> str:
    text = _UID.sub("UID", text)
    return _CHOSEN[1].sub("30000", _CHOSEN[0].sub("10.0.0.0", text))


def without_server_fields(obj: JSON) -> JSON:
    """A copy of an object without uid, versions, times and what is chosen by chance, also where uids repeat."""
    metadata = obj.get("metadata") or {}
    text = json.dumps({**obj, "metadata": {k: v for k, v in metadata.items() if k not in _SERVERS_OWN}})
    if metadata.get("uid"):
        text = text.replace(metadata["uid"], "UID")
    text = re.sub(r'"20[0-9-]{8}T[0-9:.]+Z"', lambda m: m[0] if m[0].startswith('"2024') else '"NOW"', text)
    result: JSON = json.loads(_without_chosen(text) if obj.get("kind") == "Service" else text)
    if metadata.get("generateName") or _UID.fullmatch(metadata.get("name", "")):
        result["metadata"]["name"] = "GENERATED"
    return result


@dataclass(frozen=True)
class Request:
    """What both servers are asked. `what` tells the person who reads, `field` is what differences are grouped by."""

    verb: str
    path: str
    body: Any
    what: str
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
        yield self.request.what
        if not self.aspects:
            yield f"    both refuse it: {self.real.get('message')}"
        for name in self.aspects:
            real, ours = self.real.get(name), self.ours.get(name)
            if name == "object" and type(real) is dict and type(ours) is dict:
                for path, one, other in _leaves_that_differ(real, ours, ""):
                    yield f"    object{path}: real {_short(one)}  ours {_short(other)}"
            elif name == "causes" and real is not None and ours is not None:
                yield from (f"    cause only real: {_short(each)}" for each in real if each not in ours)
                yield from (f"    cause only ours: {_short(each)}" for each in ours if each not in real)
                if sorted(real) == sorted(ours):
                    yield f"    order of causes: real {real} ours {ours}"
            elif not (name == "message" and "causes" in self.aspects):
                yield f"    {name}: real {_short(real)}"
                yield f"    {' ' * len(name)}  ours {_short(ours)}"


def _short(value: Any) -> str:
    text = value if type(value) is str else json.dumps(value)
    return text if len(text) <= 420 else f"{text[:300]} ... {text[-110:]}"


def _leaves_that_differ(one: Any, other: Any, path: str) -> Iterable[tuple[str, Any, Any]]:
    if type(one) is dict and type(other) is dict:
        for key in {**one, **other}:
            yield from _leaves_that_differ(one.get(key), other.get(key), f"{path}.{key}")
    elif type(one) is list and type(other) is list and len(one) == len(other):
        for i, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _leaves_that_differ(left, right, f"{path}[{i}]")
    elif one != other:
        yield path, one, other


@dataclass
class Outcome:
    asked: int = 0
    accepted: int = 0
    differences: list[Difference] = field(default_factory=list)

    def report(self, examples: int = 3, groups: int = 1000) -> str:
        by_field: dict[str, list[Difference]] = defaultdict(list)
        for each in self.differences:
            by_field[each.request.field].append(each)
        lines = [f"{self.asked} requests, {self.accepted} accepted by the real one, {len(self.differences)} differ"]
        for name, several in sorted(by_field.items(), key=lambda item: -len(item[1]))[:groups]:
            lines.append(f"\n== {name}: {len(several)}")
            for each in several[:examples]:
                lines.extend(each.lines())
        return "\n".join(lines)


def compare(real: ApiServer, ours: ApiServer, requests: Sequence[Request]) -> Outcome:
    """Ask both, at the same time, each in the order given."""

    def answers(server: ApiServer) -> list[JSON]:
        versions = _Versions(server)
        return [server.ask(r.verb, r.path, versions.given(r), r.content_type).comparable() for r in requests]

    with ThreadPoolExecutor(2) as both:
        told, said = both.map(answers, (real, ours))
    outcome = Outcome(len(requests))
    for request, first, other in zip(requests, told, said, strict=True):
        one = other if _in_some_order(real, request, first, other) else first
        outcome.accepted += one["status"] < 300
        if one != other or (request.field == "(unchanged)" and one["status"] >= 300):
            outcome.differences.append(Difference(request, one, other))
    return outcome


CURRENT = "(current)"
"""As the resourceVersion of an update: the one that the object has on the server that is asked."""


class _Versions:
    """What updates say for CURRENT on one server."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._known: dict[str, str] = {}

    def given(self, request: Request) -> Any:
        """The body as it is sent."""
        body = request.body
        metadata = body.get("metadata") if type(body) is dict else None
        if type(metadata) is not dict or metadata.get("resourceVersion") != CURRENT:
            return body
        path = request.path.partition("?")[0]
        if path not in self._known:
            self._known[path] = self._server.ask("GET", path).content["metadata"]["resourceVersion"]
        return {**body, "metadata": {**metadata, "resourceVersion": self._known[path]}}


_TRIES = 40


def _in_some_order(real: ApiServer, request: Request, first: JSON, other: JSON) -> bool:
    """Whether they are the same but for an order that is no more the same when the real one is asked again."""
    if not same_but_for_order(first, other):
        return False
    body = _Versions(real).given(request)
    return any(
        real.ask(request.verb, request.path, body, request.content_type).comparable() != first
        for _ in range(0 if first == other else _TRIES)
    )


def same_but_for_order(one: JSON, other: JSON) -> bool:
    """Go visits maps in random order: such causes come in another order when the same is asked again."""
    aside = ("causes", "message", "warnings")
    return (
        one.get("status") == other.get("status")
        and sorted(one.get("causes", ())) == sorted(other.get("causes", ()))
        and sorted(one.get("warnings", ())) == sorted(other.get("warnings", ()))
        and {k: v for k, v in one.items() if k not in aside} == {k: v for k, v in other.items() if k not in aside}
    )


@dataclass(frozen=True)
class ValidObjects:
    """A kind as the files of tests/support/valid declare it: how to reach it, its type, and its objects."""

    kind: str
    type: str
    path: str
    objects: tuple[JSON, ...]
    under: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    """Fields ("spec.template.spec") that are not changed: another kind's rules."""
    versioned: bool = False
    """Is an update refused that does not say which version it changes?"""


def valid_objects(kind: str) -> ValidObjects:
    """Raises KeyError if no file declares the kind."""
    for path in sorted(VALID.glob("*.yaml")):
        for each in yaml.safe_load_all(path.read_text()):
            if each.get("kind") == kind:
                objects = tuple({"kind": kind, **obj} for obj in each["objects"])
                under, without = tuple(each.get("under", ())), tuple(each.get("without", ()))
                return ValidObjects(
                    kind, each["type"], each["path"], objects, under, without, each.get("versioned", False)
                )
            if each.get("template") == kind:
                return _with_templates(each)
    raise KeyError(f"no file in {VALID} declares {kind}")


def _with_templates(declared: JSON) -> ValidObjects:
    """Workloads around the valid Pods, with the restart policy that their kind wants."""
    objects, at = [], declared["at"]
    for pod in valid_objects("Pod").objects:
        spec = {**pod["spec"], "restartPolicy": declared.get("restartPolicy", "Always")}
        if not spec["restartPolicy"]:
            spec = pod["spec"]
        elif spec["restartPolicy"] == "Always":
            spec.pop("activeDeadlineSeconds", None)  # theirs alone that end
        metadata = {"labels": {"app": "web"}}
        if "annotations" in pod["metadata"]:
            metadata["annotations"] = pod["metadata"]["annotations"]
        workload: JSON = json.loads(json.dumps(declared["around"]))
        workload["metadata"] = {"name": f"{pod['metadata']['name']}-template"}
        holder = workload
        for name in at[:-1]:
            holder = holder[name]
        holder[at[-1]] = {"metadata": metadata, "spec": spec}
        objects.append(workload)
    return ValidObjects(declared["template"], declared["type"], declared["path"], tuple(objects), tuple(at))


def chosen(kind: ValidObjects, base: JSON, count: int, chance: random.Random, under: tuple[str, ...]) -> list[Mutation]:
    """`count` mutations of an object, a third of them several at once; 0: every single one."""
    single = [
        each
        for each in mutations(kind.type, base, under=under or kind.under)
        if not (each.path[0] == "metadata" and "generateName" in (each.changed.get("metadata") or ()))  # by chance
        and not any(f"{each.field}.".startswith(f"{field}.") for field in kind.without)
    ]
    if not count:
        return single
    pairs = combined(single, base, chance, count // 3)
    return [*chance.sample(single, min(len(single), count - len(pairs))), *pairs]


def creations(kind: ValidObjects, count: int, chance: random.Random, *, under: tuple[str, ...] = ()) -> list[Request]:
    """POSTs of about `count` mutated objects, spread over the kind's valid ones."""
    each, path, result = -(-count // len(kind.objects)), f"{kind.path}?dryRun=All", []
    for base in kind.objects:
        name = base["metadata"]["name"]
        result.append(Request("POST", path, base, f"create {name}, which is meant to be valid", "(unchanged)"))
        result += [
            Request("POST", path, m.changed, f"create {name}: {m}", m.field)
            for m in chosen(kind, base, each, chance, under)
        ]
    return result


def updates(
    kind: ValidObjects, count: int, chance: random.Random, *, subresource: str = "", under: tuple[str, ...] = (),
    shown: Callable[[JSON], JSON] = lambda stored: stored,
) -> list[Request]:  # fmt: skip
    """PUTs of mutations of objects that exist; `shown`: what is mutated, given the object as it was created."""
    each, result = -(-count // len(kind.objects)), []
    for base in kind.objects:
        version = {"resourceVersion": CURRENT} if kind.versioned else {}
        path = f"{kind.path}/{base['metadata']['name']}{'/' + subresource if subresource else ''}?dryRun=All"
        result += [
            Request("PUT", path, m.changed, f"update {base['metadata']['name']} {subresource}: {m}", m.field)
            for m in chosen(kind, _with_metadata(shown(base), version), each, chance, under)
        ]
    return result


def _with_metadata(obj: JSON, more: JSON) -> JSON:
    return {**obj, "metadata": {**obj["metadata"], **more}}


def create_for_real(server: ApiServer, kind: ValidObjects) -> None:
    """The kind's valid objects with their status, unless they are there already. Raises AssertionError on refusal."""
    for obj in kind.objects:
        answer = server.ask("POST", kind.path, obj)
        assert answer.status in (201, 409), answer.content
        if "status" in obj and answer.status == 201:
            answer = server.ask("PUT", f"{kind.path}/{obj['metadata']['name']}/status", obj)
            assert answer.status == 200, answer.content


def delete_for_real(server: ApiServer, kind: ValidObjects) -> None:
    """The kind's valid objects, where they are: what is created afterwards is new."""
    for obj in kind.objects:
        path = f"{kind.path}/{obj['metadata']['name']}"
        server.ask("DELETE", f"{path}?gracePeriodSeconds=0")
        server.ask("PATCH", path, {"metadata": {"finalizers": None}}, "application/merge-patch+json")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", type=Path, required=True, help="kubeconfig of a kube-apiserver")
    parser.add_argument("--ours", type=Path, required=True, help="kubeconfig of kubeloop apiserver --nodes=0")
    parser.add_argument("--kind", action="append", required=True)
    parser.add_argument("--verb", default="create", help="create, update, or a subresource to update")
    parser.add_argument("--count", type=int, default=1000, help="requests per kind; 0: all single mutations")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--under", default="", help="mutate this field only, as spec.volumes")
    parser.add_argument("--no-empty", action="store_true", help="send no empty list or map: see sends_empty")
    parser.add_argument("--any-order", action="store_true", help="causes may come in any order, and so in messages")
    parser.add_argument("--examples", type=int, default=3, help="differences shown per field")
    options = parser.parse_args(arguments)
    real, ours = (ApiServer.from_kubeconfig(path) for path in (options.real, options.ours))
    under, differences = tuple(filter(None, options.under.split("."))), 0
    for name in options.kind:
        kind, chance = valid_objects(name), random.Random(options.seed)
        if options.verb == "create":
            for server in (real, ours):
                delete_for_real(server, kind)
            requests = creations(kind, options.count, chance, under=under)
        else:
            for server in (real, ours):
                create_for_real(server, kind)
            subresource = "" if options.verb == "update" else options.verb
            requests = updates(kind, options.count, chance, subresource=subresource, under=under)
        if options.no_empty:
            requests = [each for each in requests if not sends_empty(kind.type, each.body)]
        outcome = compare(real, ours, requests)
        for server in (real, ours):  # LimitRanges and quotas would speak of the next kind
            delete_for_real(server, kind)
        if options.any_order:
            outcome.differences = [d for d in outcome.differences if not same_but_for_order(d.real, d.ours)]
        print(f"{name} {options.verb}: {outcome.report(options.examples)}\n")
        differences += len(outcome.differences)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
