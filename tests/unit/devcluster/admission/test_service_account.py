"""ServiceAccount admission: account, token volume, image pull secrets and the secrets of pods."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kubeloop.devcluster.admission.plugin_settings import DEFAULT_PLUGINS, WITHOUT_ACCOUNTS, PluginSettings
from kubeloop.devcluster.admission.service_account import MIRROR_ANNOTATION
from kubeloop.devcluster.admission.service_account import TOKEN_MOUNT_PATH as PATH
from kubeloop.devcluster.server.apiserver import ServingSettings
from kubeloop.devcluster.validation.pod import pod_spec
from support.apiserver.api_requests import InProcessApi

JSON = dict[str, Any]
NAMESPACE = "/api/v1/namespaces/default"
ENFORCED = {"kubernetes.io/enforce-mountable-secrets": "true"}
CONTAINER = {"name": "c", "image": "i"}
ALLOWED = "service account robot does not reference that"


@pytest.fixture
async def api() -> InProcessApi:
    return InProcessApi(
        settings=ServingSettings(root_ca="certificate", admission=PluginSettings(frozenset(DEFAULT_PLUGINS)))
    )


def add_account(api: InProcessApi, annotations: JSON | None = None, **fields: Any) -> None:
    """Create the account "robot"."""
    metadata = {"name": "robot", "annotations": annotations or {}}
    api.create(f"{NAMESPACE}/serviceaccounts", {"metadata": metadata, **fields})


def create(api: InProcessApi, spec: JSON, **metadata: Any) -> tuple[int, JSON]:
    pod = {"metadata": {"name": "p", **metadata}, "spec": {"containers": [CONTAINER], **spec}}
    return api("POST", f"{NAMESPACE}/pods", pod)


def created(api: InProcessApi, spec: JSON, **metadata: Any) -> JSON:
    status, pod = create(api, spec, **metadata)
    assert status == 201, pod
    spec = pod["spec"]
    return spec


def refusal(api: InProcessApi, spec: JSON, **metadata: Any) -> str:
    status, content = create(api, spec, **metadata)
    assert (status, content["reason"]) == (403, "Forbidden"), content
    message: str = content["message"]
    return message.removeprefix('pods "p" is forbidden: ')


# --- account ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "account"),
    [
        pytest.param({}, "default", id="none"),
        pytest.param({"serviceAccountName": "robot"}, "robot", id="named"),
        pytest.param({"serviceAccount": "robot"}, "robot", id="by the old name"),
    ],
)
async def test_pod_has_the_named_or_the_default_account(api: InProcessApi, spec: JSON, account: str):
    add_account(api)
    pod = created(api, spec)
    assert (pod["serviceAccountName"], pod["serviceAccount"]) == (account, account)


async def test_pod_with_a_missing_account_is_refused(api: InProcessApi):
    message = 'error looking up service account default/robot: serviceaccount "robot" not found'
    assert refusal(api, {"serviceAccountName": "robot"}) == message


async def test_account_whose_name_is_no_path_segment_is_not_looked_up(api: InProcessApi):
    message = """error looking up service account default/a/b: invalid resource name "a/b": [may not contain '/']"""
    assert refusal(api, {"serviceAccountName": "a/b"}) == message


async def test_pod_in_a_new_namespace_is_accepted(api: InProcessApi):
    api.create("/api/v1/namespaces", {"metadata": {"name": "new"}})
    api.create("/api/v1/namespaces/new/pods", {"metadata": {"name": "p"}, "spec": {"containers": [CONTAINER]}})


async def test_pod_needs_the_default_account_where_nothing_creates_it():
    api = InProcessApi(settings=ServingSettings(admission=PluginSettings(frozenset(DEFAULT_PLUGINS))))
    message = 'error looking up service account default/default: serviceaccount "default" not found'
    assert refusal(api, {}) == message


async def test_disabled_plugin_leaves_pods_without_account():
    api = InProcessApi(settings=ServingSettings(root_ca="certificate", admission=PluginSettings(WITHOUT_ACCOUNTS)))
    pod = created(api, {})
    assert not {"serviceAccountName", "serviceAccount", "volumes"} & pod.keys()


# --- token volume -----------------------------------------------------------------------------------------------------


async def test_validation_of_equal_pods_is_cached_in_spite_of_the_random_name(api: InProcessApi):
    first = created(api, {}, name="a")["volumes"][0]["name"]
    misses = pod_spec._is_valid.cache_info().misses
    second = created(api, {}, name="b")["volumes"][0]["name"]
    assert first != second
    assert pod_spec._is_valid.cache_info().misses == misses


async def test_mount_of_a_missing_token_volume_is_refused_after_a_valid_pod(api: InProcessApi):
    created(api, {}, name="valid")
    mount = {"name": "kube-api-access-xxxxx", "mountPath": "/x"}
    status, content = create(api, {"containers": [{**CONTAINER, "volumeMounts": [mount]}]})
    assert (status, content["details"]["causes"][0]["field"]) == (422, "spec.containers[0].volumeMounts[0].name")


async def test_token_volume_is_mounted_into_all_containers(api: InProcessApi):
    other = {"name": "data", "mountPath": "/data"}
    spec = created(
        api,
        {
            "initContainers": [{"name": "init", "image": "i"}],
            "containers": [{**CONTAINER, "volumeMounts": [other]}],
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
    )
    name = spec["volumes"][1]["name"]
    assert re.fullmatch("kube-api-access-[bcdfghjklmnpqrstvwxz2456789]{5}", name)
    mount = {"name": name, "readOnly": True, "mountPath": PATH}
    assert spec["initContainers"][0]["volumeMounts"] == [mount]
    assert spec["containers"][0]["volumeMounts"] == [other, mount]
    assert spec["volumes"][1]["projected"] == {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {
                "downwardAPI": {
                    "items": [
                        {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
                    ]
                }
            },
        ],
        "defaultMode": 420,
    }


@pytest.mark.parametrize(
    ("of_account", "of_pod", "mounted"),
    [(None, None, True), (False, None, False), (True, None, True), (False, True, True), (True, False, False)],
)
async def test_pod_decides_before_its_account_on_the_token(
    api: InProcessApi, of_account: bool | None, of_pod: bool | None, mounted: bool
):
    add_account(api, **({} if of_account is None else {"automountServiceAccountToken": of_account}))
    own = {} if of_pod is None else {"automountServiceAccountToken": of_pod}
    spec = created(api, {"serviceAccountName": "robot", **own})
    assert ("volumes" in spec) == mounted == ("volumeMounts" in spec["containers"][0])


async def test_container_with_a_mount_at_the_path_keeps_it(api: InProcessApi):
    own = {"name": "own", "mountPath": PATH}
    volume = {"name": "own", "emptyDir": {}}
    spec = created(api, {"containers": [{**CONTAINER, "volumeMounts": [own]}], "volumes": [volume]})
    assert spec["containers"][0]["volumeMounts"] == [own]
    assert [volume["name"] for volume in spec["volumes"]] == ["own"]


async def test_present_token_volume_is_used(api: InProcessApi):
    name = "kube-api-access-mine"
    spec = created(api, {"volumes": [{"name": name, "emptyDir": {}}]})
    assert [volume["name"] for volume in spec["volumes"]] == [name]
    assert spec["containers"][0]["volumeMounts"] == [{"name": name, "readOnly": True, "mountPath": PATH}]


async def test_update_changes_neither_account_nor_volume(api: InProcessApi):
    created(api, {})
    before = api.succeed("GET", f"{NAMESPACE}/pods/p")
    after = api.succeed("PATCH", f"{NAMESPACE}/pods/p", {"metadata": {"labels": {"a": "b"}}})
    assert after["spec"] == before["spec"]


# --- secrets ----------------------------------------------------------------------------------------------------------


async def test_image_pull_secrets_of_the_account_are_copied(api: InProcessApi):
    add_account(api, imagePullSecrets=[{"name": "one"}, {"name": "two"}])
    assert created(api, {"serviceAccountName": "robot"})["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]


async def test_own_image_pull_secrets_are_kept(api: InProcessApi):
    add_account(api, imagePullSecrets=[{"name": "one"}])
    spec = created(api, {"serviceAccountName": "robot", "imagePullSecrets": [{"name": "own"}]})
    assert spec["imagePullSecrets"] == [{"name": "own"}]


ENV = {"env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}
ENV_FROM = {"envFrom": [{"secretRef": {"name": "s"}}]}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param(
            {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]},
            f'volume with secret.secretName="s" is not allowed because {ALLOWED} secret',
            id="volume",
        ),
        pytest.param(
            {"containers": [{**CONTAINER, **ENV}]},
            f'container c with envVar E referencing secret.secretName="s" is not allowed because {ALLOWED} secret',
            id="env",
        ),
        pytest.param(
            {"containers": [{**CONTAINER, **ENV_FROM}]},
            f'container c with envFrom referencing secret.secretName="s" is not allowed because {ALLOWED} secret',
            id="envFrom",
        ),
        pytest.param(
            {"initContainers": [{**CONTAINER, "name": "i", **ENV}]},
            f'init container i with envVar E referencing secret.secretName="s" is not allowed because {ALLOWED} secret',
            id="env of an init container",
        ),
        pytest.param(
            {"imagePullSecrets": [{"name": "s"}]},
            f'imagePullSecrets[0].name="s" is not allowed because {ALLOWED} imagePullSecret',
            id="image pull secret",
        ),
    ],
)
async def test_account_restricts_the_secrets_of_its_pods(api: InProcessApi, spec: JSON, message: str):
    add_account(api, ENFORCED)
    assert refusal(api, {"serviceAccountName": "robot", **spec}) == message


async def test_account_allows_the_secrets_that_it_references(api: InProcessApi):
    add_account(api, ENFORCED, secrets=[{"name": "s"}], imagePullSecrets=[{"name": "s"}])
    volumes = [{"name": "v", "secret": {"secretName": "s"}}]
    containers = [{**CONTAINER, **ENV, **ENV_FROM}]
    spec = {"volumes": volumes, "containers": containers, "imagePullSecrets": [{"name": "s"}]}
    assert created(api, {"serviceAccountName": "robot", **spec})


async def test_account_without_the_annotation_allows_all_secrets(api: InProcessApi):
    add_account(api, {"kubernetes.io/enforce-mountable-secrets": "yes"})
    assert created(api, {"serviceAccountName": "robot", "containers": [{**CONTAINER, **ENV}]})


@pytest.mark.parametrize(("annotations", "status"), [(ENFORCED, 500), ({}, 200)], ids=["enforced", "free"])
async def test_account_restricts_ephemeral_containers(api: InProcessApi, annotations: JSON, status: int):
    add_account(api, annotations)
    created(api, {"serviceAccountName": "robot"})
    path = f"{NAMESPACE}/pods/p/ephemeralcontainers"
    body = {"spec": {"ephemeralContainers": [{"name": "e", "image": "i", **ENV}]}}
    code, content = api("PATCH", path, body, "application/strategic-merge-patch+json")
    assert code == status, content
    if status == 500:
        secret = 'secret.secretName="s" is not allowed because'
        assert content["message"] == f"ephemeral container e with envVar E referencing {secret} {ALLOWED} secret"


async def test_ephemeral_container_needs_the_account(api: InProcessApi):
    add_account(api)
    created(api, {"serviceAccountName": "robot"})
    api.succeed("DELETE", f"{NAMESPACE}/serviceaccounts/robot")
    body = {"spec": {"ephemeralContainers": [{"name": "e", "image": "i"}]}}
    path = f"{NAMESPACE}/pods/p/ephemeralcontainers"
    status, content = api("PATCH", path, body, "application/strategic-merge-patch+json")
    reason = 'error looking up service account default/robot: serviceaccount "robot" not found'
    assert (status, content["message"]) == (403, f'pods "p" is forbidden: {reason}')


# --- mirror pods ------------------------------------------------------------------------------------------------------

MIRROR = {MIRROR_ANNOTATION: "x"}


async def test_mirror_pod_has_no_account(api: InProcessApi):
    spec = created(api, {"nodeName": "n"}, annotations=MIRROR)
    assert not {"serviceAccountName", "volumes"} & spec.keys()


TOKEN = {"serviceAccountToken": {"path": "token"}}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param({"serviceAccountName": "default"}, "reference service accounts", id="account"),
        pytest.param({"imagePullSecrets": [{"name": "s"}]}, "reference secrets", id="pull secret"),
        pytest.param({"containers": [{**CONTAINER, **ENV}]}, "reference secrets", id="env"),
        pytest.param({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}, "reference secrets", id="volume"),
        pytest.param(
            {"volumes": [{"name": "v", "cephfs": {"monitors": ["m"], "secretRef": {"name": "s"}}}]},
            "reference secrets",
            id="secret of a driver",
        ),
        pytest.param(
            {"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "s"}}]}}]},
            "reference secrets",
            id="projected secret",
        ),
        pytest.param(
            {"volumes": [{"name": "v", "projected": {"sources": [TOKEN]}}]},
            "use ServiceAccountToken volume projections",
            id="token",
        ),
    ],
)
async def test_mirror_pod_may_not_use_accounts_or_secrets(api: InProcessApi, spec: JSON, message: str):
    assert refusal(api, {"nodeName": "n", **spec}, annotations=MIRROR) == f"a mirror pod may not {message}"
