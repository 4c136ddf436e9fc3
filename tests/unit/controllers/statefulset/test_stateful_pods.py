"""Names, ordinals, claims and JSON of the Pods of a StatefulSet."""

from __future__ import annotations

import pytest

from kubeloop.controllers.statefulset.stateful_pods import (
    claims_of,
    identity_matches,
    is_in_range,
    parent_and_ordinal,
    stateful_pod,
    storage_matches,
)
from kubeloop.kube.objects.api_types import ControllerRevision, ObjectMeta, Pod, StatefulSet, convert
from support.objects.stateful_sets import stateful_set

REVISION = ControllerRevision(metadata=ObjectMeta(name="web-abc"))


def web(**arguments: object) -> StatefulSet:
    body = stateful_set(**arguments)
    body["metadata"].update(namespace="ns", uid="sts-uid")
    return convert(StatefulSet, body)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("web-0", ("web", 0)),
        ("my-web-12", ("my-web", 12)),
        ("web-007", ("web", 7)),
        ("web-2147483648", ("web", -1)),
        ("web", ("", -1)),
        ("web-", ("", -1)),
        ("web-a1", ("", -1)),
        ("web-٣", ("", -1)),
    ],
)
def test_parent_and_ordinal(name, expected):
    assert parent_and_ordinal(name) == expected


def test_range_of_ordinals_begins_at_start():
    sts = web(replicas=2, ordinals={"start": 5})
    assert [ordinal for ordinal in range(-1, 9) if is_in_range(sts, ordinal)] == [5, 6]


def test_identity_requires_name_and_label():
    def pod(name: str, label: str) -> Pod:
        labels = {"statefulset.kubernetes.io/pod-name": label}
        return convert(Pod, {"metadata": {"name": name, "labels": labels}})

    assert identity_matches(web(), pod("web-1", "web-1"))
    assert not identity_matches(web(), pod("web-1", "web-2"))
    assert not identity_matches(web(), pod("web-01", "web-01"))
    assert not identity_matches(web(), pod("other-1", "other-1"))


def test_storage_matches_if_each_claim_has_a_volume():
    def pod(*claims: tuple[str, str]) -> Pod:
        volumes = [{"name": name, "persistentVolumeClaim": {"claimName": claim}} for name, claim in claims]
        return convert(Pod, {"metadata": {"name": "web-1"}, "spec": {"volumes": volumes}})

    sts = web(claims=("data",))
    assert storage_matches(sts, pod(("data", "data-web-1"), ("more", "x")))
    assert not storage_matches(sts, pod(("data", "data-web-0")))
    assert not storage_matches(sts, pod())
    assert storage_matches(web(), pod())


def test_claims_have_the_labels_of_template_and_selector():
    sts = web(claims=("data",))
    sts.spec.volume_claim_templates[0]["metadata"]["labels"] = {"tier": "db"}
    (name,) = claims = claims_of(sts, 3)
    assert name == "data-web-3"
    assert claims[name]["metadata"] == {"name": name, "namespace": "ns", "labels": {"tier": "db", "app": "web"}}
    assert claims[name]["spec"]["accessModes"] == ["ReadWriteOnce"]


def test_pod_replaces_volumes_of_the_template_that_claims_have():
    volumes = [{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]
    sts = web(claims=("data",), pod={"volumes": volumes, "hostname": "from-template"})
    pod = stateful_pod(sts, REVISION, 4)
    assert pod["metadata"]["name"] == "web-4"
    assert pod["metadata"]["generateName"] == "web-"
    assert pod["metadata"]["labels"]["controller-revision-hash"] == "web-abc"
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("web-4", "web")
    assert pod["spec"]["volumes"] == [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-4"}},
        {"name": "tmp", "emptyDir": {}},
    ]
    assert sts.spec.template["spec"]["hostname"] == "from-template", "the template is not changed"


def test_pod_has_the_template_of_its_revision():
    template = {"$patch": "replace", "spec": {"containers": [{"name": "main", "image": "old"}]}}
    revision = ControllerRevision(metadata=ObjectMeta(name="web-old"), data={"spec": {"template": template}})
    pod = stateful_pod(web(), revision, 0)
    assert pod["spec"]["containers"] == [{"name": "main", "image": "old"}]
