"""Authorization: the same decisions, reasons and refusals as kube-apiserver with --authorization-mode=Node,RBAC."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from typing import Any

import pytest

from support.apiserver.http_api import HttpApi, ServerPair, server_pair
from support.comparison.same_responses import Request, check_responses
from support.objects.role_bindings import BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, RBAC, ROLES, binding, role

JSON = dict[str, Any]
Headers = tuple[tuple[str, str], ...]
REVIEWS = "/apis/authorization.k8s.io/v1"
OTHER_BINDINGS = f"{RBAC}/namespaces/other/rolebindings"
_SYNCED_SECONDS = 20.0


def rule(verbs: str, groups: str, resources: str, names: str = "") -> JSON:
    """Return a PolicyRule; the core group is "core"."""
    return {
        "verbs": verbs.split(),
        "apiGroups": [group.removeprefix("core") for group in groups.split()],
        "resources": resources.split(),
        **({"resourceNames": names.split()} if names else {}),
    }


def urls(verbs: str, *paths: str) -> JSON:
    return {"verbs": verbs.split(), "nonResourceURLs": [*paths]}


def account_binding(name: str, role_name: str, account: str, namespace: str = "") -> JSON:
    """Return a binding of a ServiceAccount; without namespace, of that of the binding."""
    subject = {"kind": "ServiceAccount", "name": account, **({"namespace": namespace} if namespace else {})}
    return {**binding(name, role_name), "subjects": [subject]}


OBJECTS = [
    ("/api/v1/namespaces", {"metadata": {"name": "other"}}),
    ("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "c"}, "data": {"a": "b"}}),
    (CLUSTER_ROLES, role("pods", rule("get list watch", "core", "pods pods/log"))),
    (CLUSTER_ROLES, role("logs", rule("get", "*", "*/log */scale"))),
    (CLUSTER_ROLES, role("named", rule("get update delete list watch", "core apps", "configmaps deployments", "a c"))),
    (CLUSTER_ROLES, role("everything", rule("*", "*", "*"))),
    (CLUSTER_ROLES, role("paths", urls("get", "/metrics", "/debug/*", "/logs*"), urls("*", "/any"))),
    (CLUSTER_ROLES, role("all-paths", urls("get post", "*"))),
    (CLUSTER_ROLES, role("verbs", rule("*", "batch", "jobs"))),
    (
        CLUSTER_ROLES,
        role("part-a", rule("get", "core", "secrets"), **{"metadata": {"name": "part-a", "labels": {"part": "of"}}}),
    ),
    (
        CLUSTER_ROLES,
        {
            "metadata": {"name": "writer"},
            "rules": [
                rule("create update patch get", "rbac.authorization.k8s.io", "*"),
                rule("get list", "core", "pods services"),
                rule("get", "core", "configmaps", "a b"),
                rule("*", "apps", "deployments/scale"),
                urls("get", "/metrics/*"),
            ],
        },
    ),
    (CLUSTER_ROLES, role("escalator", rule("escalate", "rbac.authorization.k8s.io", "roles"))),
    (CLUSTER_ROLES, role("binder", rule("bind", "rbac.authorization.k8s.io", "clusterroles", "everything"))),
    (CLUSTER_ROLES, role("patcher", rule("get update patch", "core", "configmaps limitranges"))),
    (
        CLUSTER_ROLES,
        role(
            "impersonator",
            rule("impersonate", "core", "users", "alice"),
            rule("impersonate", "core", "groups", "dev"),
            rule("impersonate", "core", "serviceaccounts", "robot"),
            rule("impersonate", "authentication.k8s.io", "userextras/scopes.io/x", "one"),
            rule("impersonate", "authentication.k8s.io", "uids", "7"),
        ),
    ),
    (
        CLUSTER_ROLES,
        role(
            "constrained",
            rule("impersonate:user-info", "authentication.k8s.io", "users groups"),
            rule("impersonate:serviceaccount", "authentication.k8s.io", "serviceaccounts"),
            rule("impersonate:arbitrary-node", "authentication.k8s.io", "nodes", "n"),
            rule("impersonate-on:user-info:list impersonate-on:serviceaccount:list", "core", "pods"),
            rule("impersonate-on:arbitrary-node:create", "authentication.k8s.io", "selfsubjectreviews"),
        ),
    ),
    (ROLES, role("local", rule("get create", "core", "configmaps"))),
    (BINDINGS, binding("local", "local", "alice", kind="Role")),
    (BINDINGS, binding("pods", "pods", groups=("dev",))),
    (BINDINGS, account_binding("robot", "named", "robot", "default")),
    (OTHER_BINDINGS, account_binding("near", "pods", "near")),
    (OTHER_BINDINGS, binding("gone", "gone", "lost")),
    (CLUSTER_BINDINGS, binding("gone", "gone", "lost")),
    (CLUSTER_BINDINGS, binding("logs", "logs", "logger")),
    (CLUSTER_BINDINGS, binding("everything", "everything", "boss")),
    (CLUSTER_BINDINGS, binding("paths", "paths", "prometheus")),
    (CLUSTER_BINDINGS, binding("all-paths", "all-paths", "crawler")),
    (CLUSTER_BINDINGS, account_binding("verbs", "verbs", "robot", "other")),
    (CLUSTER_BINDINGS, binding("patcher", "patcher", "patcher")),
    (CLUSTER_BINDINGS, binding("impersonator", "impersonator", "actor")),
    (CLUSTER_BINDINGS, binding("constrained", "constrained", "mime")),
    *((CLUSTER_BINDINGS, binding(f"writer-{name}", "writer", name)) for name in ("writer", "escalator", "binder")),
    (CLUSTER_BINDINGS, binding("escalator", "escalator", "escalator")),
    (CLUSTER_BINDINGS, binding("binder", "binder", "binder")),
    (CLUSTER_BINDINGS, binding("last", "pods", "last")),
]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerPair]:
    with server_pair(tmp_path_factory.mktemp("servers"), {"authorization-mode": "Node,RBAC"}) as servers:
        for server in (servers.real, servers.ours):
            wait_for(server, "GET", f"{CLUSTER_ROLES}/cluster-admin", 200)
            for path, obj in OBJECTS:
                assert server.request("POST", path, obj).status == 201, (path, obj)
            wait_for(server, "GET", "/api/v1/pods", 200, as_user("last"))
        yield servers


def wait_for(server: HttpApi, method: str, path: str, status: int, headers: Headers = ()) -> None:
    """Wait until kube-apiserver's caches have the objects that a response depends on."""
    deadline = time.monotonic() + _SYNCED_SECONDS
    while server.request(method, path, headers=headers).status != status:
        assert time.monotonic() < deadline, path
        time.sleep(0.1)


def as_user(name: str, *groups: str, **extra: str) -> Headers:
    headers = [("Impersonate-User", name), *(("Impersonate-Group", group) for group in groups)]
    return (*headers, *((f"Impersonate-{field.replace('_', '-')}", value) for field, value in extra.items()))


ROBOT, OTHER_ROBOT = "system:serviceaccount:default:robot", "system:serviceaccount:other:robot"
SUBJECTS: list[tuple[str, list[str]]] = [
    ("alice", []),
    ("bob", ["dev"]),
    (ROBOT, ["system:serviceaccounts"]),
    (OTHER_ROBOT, ["system:serviceaccounts", "system:serviceaccounts:other"]),
    ("system:serviceaccount:other:near", []),
    ("lost", []),
    ("logger", []),
    ("boss", []),
    ("prometheus", []),
    ("crawler", []),
    ("root", ["system:masters"]),
    ("system:anonymous", ["system:unauthenticated"]),
    ("system:node:n", ["system:nodes"]),
    ("system:node:", ["system:nodes"]),
    ("system:node:n", []),
    ("nobody", []),
]
RESOURCES = [
    ("get", "", "pods", "", "default", ""),
    ("list", "", "pods", "", "", ""),
    ("watch", "", "pods", "", "other", "p"),
    ("get", "", "pods", "log", "default", "p"),
    ("get", "metrics.k8s.io", "pods", "", "default", ""),
    ("delete", "", "configmaps", "", "default", "a"),
    ("list", "", "configmaps", "", "default", ""),
    ("get", "", "configmaps", "", "default", "c"),
    ("create", "", "configmaps", "", "default", ""),
    ("update", "apps", "deployments", "", "default", "a"),
    ("update", "apps", "deployments", "scale", "default", "a"),
    ("get", "apps", "deployments", "scale", "default", "b"),
    ("get", "batch", "jobs", "", "default", ""),
    ("frobnicate", "batch", "jobs", "", "", ""),
    ("get", "batch", "jobs", "status", "", ""),
    ("create", "authorization.k8s.io", "selfsubjectaccessreviews", "", "", ""),
    ("*", "*", "*", "*", "", "*"),
    ("get", "", "nodes", "", "", "n"),
    ("list", "", "nodes", "", "", ""),
    ("get", "", "secrets", "", "default", "s"),
    ("create", "coordination.k8s.io", "leases", "", "kube-node-lease", "n"),
    ("create", "certificates.k8s.io", "certificatesigningrequests", "", "", ""),
]
PATHS = [
    ("get", "/metrics"), ("get", "/metrics/x"), ("get", "/debug"), ("get", "/debug/pprof"), ("get", "/logs"),
    ("get", "/logsx"), ("put", "/any"), ("get", "/any/x"), ("get", "/version"), ("get", "/healthz"), ("get",
    "/livez/ping"),
    ("get", "/api"), ("get", "/apis/apps"), ("post", "/openapi/v3"), ("get", ""),
]  # fmt: skip


def access_reviews() -> Iterator[Request]:
    names = ("verb", "group", "resource", "subresource", "namespace", "name")
    for user, groups in SUBJECTS:
        specs: list[JSON] = [
            {"resourceAttributes": {name: value for name, value in zip(names, values, strict=True) if value}}
            for values in RESOURCES
        ]
        specs += [{"nonResourceAttributes": {"verb": verb, "path": path}} for verb, path in PATHS]
        for spec in specs:
            body = {"spec": {"user": user, "groups": groups, **spec}}
            yield Request("POST", f"{REVIEWS}/subjectaccessreviews", body)


def test_subject_access_reviews_match_kube_apiserver(servers):
    requests = [*access_reviews()]
    assert len(requests) > 500
    check_responses(servers, requests)


def test_reviews_with_selectors_match_kube_apiserver(servers):
    node = {"user": "system:node:n", "groups": ["system:nodes"]}
    fields: list[JSON] = [
        {"rawSelector": "spec.nodeName=n"},
        {"rawSelector": "spec.nodeName=m"},
        {"rawSelector": "spec.nodeName"},
        {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n"]}]},
        {"requirements": [{"key": "spec.nodeName", "operator": "NotIn", "values": ["n"]}]},
        {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n", "m"]}]},
        {"requirements": [{"key": "a", "operator": "Exists"}]},
        {
            "requirements": [
                {"key": "spec.nodeName", "operator": "In", "values": ["n"]},
                {"key": "a", "operator": "Other", "values": ["n"]},
            ]
        },
    ]
    labels: list[JSON] = [
        {"rawSelector": "a in (b"},
        {"rawSelector": "a=b"},
        {"requirements": [{"key": "a", "operator": "Other"}]},
        {"requirements": [{"key": "a", "operator": "Exists"}, {"key": "a", "operator": "Other"}]},
    ]
    attributes = [{"fieldSelector": selector} for selector in fields] + [{"labelSelector": entry} for entry in labels]
    requests = [
        Request(
            "POST",
            f"{REVIEWS}/subjectaccessreviews",
            {"spec": {**node, "resourceAttributes": {"verb": "list", "resource": "pods", **selectors}}},
        )
        for selectors in attributes
    ]
    check_responses(servers, requests)


def test_reviews_of_the_own_user_match_kube_apiserver(servers):
    users = [
        as_user("alice"), as_user("bob", "dev"), as_user(ROBOT), as_user("boss"), as_user("lost"), as_user("last"), (),
        as_user("system:node:n", "system:nodes"),
    ]  # fmt: skip
    attributes = {"verb": "get", "resource": "pods", "namespace": "default"}
    requests = []
    for headers in users:
        own = {"spec": {"resourceAttributes": attributes}}
        requests.append(Request("POST", f"{REVIEWS}/selfsubjectaccessreviews", own, headers=headers))
        requests += [
            Request("POST", f"{REVIEWS}/selfsubjectrulesreviews", {"spec": spec}, headers=headers)
            for spec in ({"namespace": "default"}, {"namespace": "other"}, {})
        ]
    local = {"spec": {"user": "alice", "resourceAttributes": {**attributes, "resource": "configmaps"}}}
    requests += [
        Request("POST", f"{REVIEWS}/namespaces/default/localsubjectaccessreviews", local, headers=headers)
        for headers in ((), as_user("boss"), as_user("alice"))
    ]
    check_sorted_rules(servers, requests)


def is_patched(entry: JSON) -> bool:
    """Return True for a rule that only patched builds of kube-apiserver have."""
    return "/.well-known" in entry.get("nonResourceURLs", ())


def check_sorted_rules(servers: ServerPair, requests: list[Request]) -> None:
    """Compare responses with the rules of a review in any order: kube-apiserver's order of bindings is random."""
    different = []
    for request in requests:
        real, ours = (
            server.request(request.method, request.path, request.body, headers=request.headers)
            for server in (servers.real, servers.ours)
        )
        for response in (real, ours):
            status = response.content.get("status")
            if isinstance(status, dict):
                for field in ("resourceRules", "nonResourceRules"):
                    if field in status:
                        status[field] = sorted((entry for entry in status[field] if not is_patched(entry)), key=str)
                        for rules in status[field]:
                            for values in rules.values():
                                values.sort()
        if (real.status, real.content) != (ours.status, ours.content):
            different.append((request, real.content, ours.content))
    assert not different, "\n".join(map(str, different))


def test_refused_requests_match_kube_apiserver(servers):
    methods = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
    paths = [
        "/api/v1/pods", "/api/v1/pods?watch=1&timeoutSeconds=1", "/api/v1/namespaces/default/pods/p",
        "/api/v1/namespaces/default/pods/p/log", "/api/v1/namespaces/default/pods/p/exec?command=a",
        "/api/v1/nodes/n/proxy/a",
        "/api/v1/namespaces/default", "/api/v1/namespaces/default/finalize", "/apis/apps/v1/deployments",
        "/apis/apps/v1/namespaces/default/deployments/a/scale", "/apis/nowhere.io/v1/things",
        "/apis/nowhere.io/v1/things/a/b/c",
        "/apis/nowhere.io/v1", "/api/v1/watch/pods", "/api/v1/watch/namespaces/default/pods/p", "/nowhere",
        "/metrics", "/",
        "/api/v2/pods", "/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name%3Da",
        "/api/v1/configmaps?fieldSelector=metadata.name%3Da,a!%3Db",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/a",
    ]  # fmt: skip
    requests = [
        Request(method, path, {} if method in ("POST", "PUT", "PATCH") else None, headers=as_user("nobody&<b>"))
        for method, path in product(methods, paths)
    ]
    check_responses(servers, requests)


def test_allowed_and_refused_writes_match_kube_apiserver(servers):
    path = "/api/v1/namespaces/default/configmaps"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}, "data": {"a": "b"}}
    apply, limits = "application/apply-patch+yaml", {"metadata": {"name": "l"}, "spec": {"limits": []}}
    requests = [
        Request("PATCH", f"{path}/new?fieldManager=m", body, apply, headers=as_user("patcher")),
        Request("PUT", "/api/v1/namespaces/default/limitranges/l", limits, headers=as_user("patcher")),
        Request("PATCH", f"{path}/c?fieldManager=m", {"data": {"x": "y"}}, "application/merge-patch+json"),
        Request("GET", f"{path}/c", headers=as_user("patcher")),
        Request("GET", f"{path}/c", headers=as_user("nobody")),
        Request("GET", f"{path}/c", accept="application/yaml", headers=as_user("nobody")),
        Request("GET", path, headers=as_user("patcher")),
        Request("DELETE", f"{path}/none", headers=as_user("patcher")),
        Request("POST", path, {"metadata": {"name": "x"}}, headers=as_user("alice")),
        Request("POST", f"{path}?dryRun=All", {"metadata": {"name": "y"}}, headers=as_user("alice")),
        Request("POST", "/api/v1/namespaces/other/configmaps", {"metadata": {"name": "x"}}, headers=as_user("alice")),
    ]
    check_responses(servers, requests)


GRANTS = [
    rule("get", "core", "pods"),
    rule("get list watch", "core", "pods nodes"),
    rule("get", "core", "pods", "a b"),
    rule("get", "core", "configmaps", "a"),
    rule("get", "core", "configmaps", "a c"),
    rule("get", "core", "configmaps"),
    rule("patch", "apps", "deployments/scale"),
    rule("patch", "apps batch", "deployments/scale jobs"),
    rule("*", "core", "pods"),
    rule("get", "*", "*"),
]


def test_escalations_match_kube_apiserver(servers):
    requests = []
    for user, (index, grant) in product(("writer", "escalator", "boss", "root"), enumerate(GRANTS)):
        headers = as_user(user, *(("system:masters",) if user == "root" else ()))
        name = f"{user}-{index}"
        requests.append(Request("POST", ROLES, role(name, grant), headers=headers))
        requests.append(
            Request("POST", CLUSTER_ROLES, role(name, grant, urls("get", "/metrics/a", "/b")), headers=headers)
        )
        requests.append(Request("PUT", f"{ROLES}/local", role("local", grant), headers=headers))
    for user in ("writer", "escalator", "boss"):
        headers = as_user(user)
        aggregation = {"clusterRoleSelectors": [{"matchLabels": {"a": user}}]}
        requests += [
            Request("POST", CLUSTER_ROLES, role(f"{user}-all", aggregationRule=aggregation), headers=headers),
            Request(
                "PATCH", f"{CLUSTER_ROLES}/everything", {"metadata": {"finalizers": [f"a.b/{user}"]}},
                "application/merge-patch+json", headers=headers,
            ),
            Request(
                "PATCH", f"{CLUSTER_ROLES}/everything", {"metadata": {"labels": {"a": user}}},
                "application/merge-patch+json", headers=headers,
            ),
            Request("POST", ROLES, {"metadata": {"name": "invalid"}, "rules": [{"verbs": []}]}, headers=headers),
        ]  # fmt: skip
    generated = {"metadata": {"generateName": "x-"}, "rules": [GRANTS[-1]]}
    requests.append(Request("POST", ROLES, generated, headers=as_user("writer")))
    check_responses(servers, requests)


def test_bindings_match_kube_apiserver(servers):
    requests = []
    roles = ("pods", "named", "everything", "nowhere", "writer", "logs")
    for user, name in product(("writer", "binder", "boss"), roles):
        headers = as_user(user)
        requests += [
            Request("POST", path, binding(f"{user}-{name}", name, "bob"), headers=headers)
            for path in (BINDINGS, CLUSTER_BINDINGS)
        ]
        requests.append(
            Request("POST", BINDINGS, binding(f"r-{user}-{name}", name, "bob", kind="Role"), headers=headers)
        )
    for user in ("writer", "binder"):
        requests += [
            Request("PUT", f"{BINDINGS}/robot", binding("robot", "named", "bob"), headers=as_user(user)),
            Request(
                "PUT",
                f"{CLUSTER_BINDINGS}/everything",
                binding("everything", "everything", "bob"),
                headers=as_user(user),
            ),
            Request("POST", BINDINGS, binding("kind", "pods", "bob", kind="Other"), headers=as_user(user)),
            Request("POST", BINDINGS, {"metadata": {"name": "no-role"}}, headers=as_user(user)),
        ]
    check_responses(servers, requests)


def test_impersonation_matches_kube_apiserver(servers):
    """The impersonating users are ServiceAccounts with tokens, because impersonation does not nest."""
    users = [
        as_user("alice"), as_user("bob"), as_user("alice", "dev"), as_user("alice", "dev", "ops"), as_user(ROBOT),
        as_user(OTHER_ROBOT), as_user("system:node:n"), as_user("system:node:m"), as_user("system:node:n",
        "system:nodes"),
        as_user("alice", Uid="7"), as_user("alice", Uid="8"), as_user("alice", Extra_scopes_io="x"),
        (*as_user("alice"), ("Impersonate-Extra-scopes.io%2fx", "one")),
        (*as_user("alice"), ("Impersonate-Extra-scopes.io%2fx", "two")),
        (*as_user("alice"), ("Impersonate-Extra-scopes.io%2fy", "one")),
        as_user("root", "system:masters"), as_user("system:anonymous"), as_user("alice", "a", "b", "c", "d"),
        (("Impersonate-Group", "dev"),), (("Impersonate-Uid", "7"),),
    ]  # fmt: skip
    reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    for user, role_name in (("actor", "impersonator"), ("mime", "constrained"), ("plain", "pods")):
        tokens = []
        for server in (servers.real, servers.ours):
            accounts = "/api/v1/namespaces/default/serviceaccounts"
            assert server.request("POST", accounts, {"metadata": {"name": user}}).status == 201
            bound = account_binding(f"{user}-account", role_name, user, "default")
            assert server.request("POST", CLUSTER_BINDINGS, bound).status == 201
            tokens.append(server.request("POST", f"{accounts}/{user}/token", {"spec": {}}).content["status"]["token"])
        time.sleep(1)
        different = []
        with closing(servers.real.without_token()) as real, closing(servers.ours.without_token()) as ours:
            for headers, (method, path, body) in product(
                users, [("GET", "/api/v1/pods", None), ("POST", reviews, {}), ("GET", "/api/v1/nodes", None)]
            ):
                responses = []
                for server, token in zip((real, ours), tokens, strict=True):
                    with_token = [*headers, ("Authorization", f"Bearer {token}")]
                    response = server.request(method, path, body, headers=with_token)
                    content = response.content
                    if response.status == 201:
                        content = content["status"]
                    responses.append((response.status, None if response.status == 200 else content))
                if responses[0] != responses[1]:
                    different.append((user, headers, method, path, *responses))
        assert not different, "\n".join(map(str, different))


def test_impersonation_by_administrators_matches_kube_apiserver(servers):
    users = [
        as_user("system:node:n"), as_user("system:node:N"), as_user("system:node:n", "a"), as_user(ROBOT),
        as_user(ROBOT, "a"), as_user("alice", "system:masters"), as_user("system:anonymous"), as_user("a", Uid="u"),
        as_user("alice", "system:unauthenticated"), (*as_user("alice"), ("Impersonate-Extra-bad", "x")),
    ]  # fmt: skip
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    check_responses(servers, [Request("POST", path, {}, headers=headers) for headers in users])


def test_anonymous_requests_match_kube_apiserver(servers):
    paths = (
        "/",
        "/api",
        "/healthz",
        "/livez",
        "/readyz",
        "/version",
        "/version/",
        "/metrics",
        "/api/v1/pods",
        "/openapi/v2",
    )
    different = []
    with closing(servers.real.without_token()) as real_server, closing(servers.ours.without_token()) as our_server:
        for path, authorization in product(paths, ("", "Basic YTpi", "Bearer", "Bearer wrong", "Other x")):
            headers = [("Authorization", authorization)] if authorization else []
            real, ours = (server.request("GET", path, headers=headers) for server in (real_server, our_server))
            if real.status != ours.status or (real.status >= 400 and real.content != ours.content):
                different.append((path, authorization, real.status, real.content, ours.status, ours.content))
    assert not different, "\n".join(map(str, different))
