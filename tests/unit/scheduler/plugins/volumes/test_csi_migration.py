"""CSI migration: volume handles and node affinity of in-tree volumes. Source: csi-translation-lib of v1.36."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.kube.objects.api_types import Volume, convert
from kubeloop.kube.objects.in_tree_plugins import in_tree_plugin
from kubeloop.kube.objects.storage_types import PersistentVolume
from kubeloop.scheduler.plugins.volumes.csi_migration import TranslationError, inline_volume_handle, translate_volume

ZONE, BETA_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
REGION, BETA_REGION = "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"


def volume(
    source: dict[str, Any], labels: dict[str, str] | None = None, *terms: dict[str, Any], **spec: Any
) -> PersistentVolume:
    required = {"nodeSelectorTerms": [{"matchExpressions": expressions(term)} for term in terms]}
    spec = {**source, **({"nodeAffinity": {"required": required}} if terms else {}), **spec}
    return convert(PersistentVolume, {"metadata": {"name": "pv", "labels": labels or {}}, "spec": spec})


def expressions(term: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": key, "operator": "In", "values": values} if values else {"key": key, "operator": "Exists"}
        for key, values in term.items()
    ]


def translate(pv: PersistentVolume) -> tuple[str, list[dict[str, Any]]]:
    """Return the CSI volume handle and the terms of the node affinity as key -> values."""
    plugin = in_tree_plugin(pv.spec)
    assert plugin is not None
    handle, affinity = translate_volume(pv, plugin)
    required = affinity.required if affinity is not None else None
    terms = required.node_selector_terms if required is not None else ()
    return handle, [
        {expression.key: list(expression.values) for expression in term.match_expressions} for term in terms
    ]


GCE = {"gcePersistentDisk": {"pdName": "d"}}
EBS = {"awsElasticBlockStore": {"volumeID": "aws://us-a/vol-1"}}
VSPHERE = {"vsphereVolume": {"volumePath": "[store] d.vmdk"}}
GCE_ZONE = "topology.gke.io/zone"
VSPHERE_ZONE, VSPHERE_REGION = "topology.csi.vmware.com/zone", "topology.csi.vmware.com/region"


@pytest.mark.parametrize(
    ("pv", "handle"),
    [
        pytest.param(volume(GCE), "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d", id="gce without a zone"),
        pytest.param(volume(GCE, {ZONE: "us-a-1"}), "projects/UNSPECIFIED/zones/us-a-1/disks/d", id="gce zonal"),
        pytest.param(
            volume(GCE, {ZONE: "us-a-1", BETA_ZONE: "us-a-2"}),
            "projects/UNSPECIFIED/zones/us-a-2/disks/d",
            id="gce: beta label takes precedence",
        ),
        pytest.param(
            volume(GCE, {ZONE: "us-a-1__us-a-2"}), "projects/UNSPECIFIED/regions/us-a/disks/d", id="gce regional"
        ),
        pytest.param(volume(EBS), "vol-1", id="ebs by URL"),
        pytest.param(volume({"awsElasticBlockStore": {"volumeID": "anything"}}), "anything", id="ebs by name"),
        pytest.param(volume({"azureDisk": {"diskURI": "u", "kind": "Managed"}}), "u", id="azure managed disk"),
        pytest.param(volume({"portworxVolume": {"volumeID": "p"}}), "p", id="portworx"),
        pytest.param(volume(VSPHERE), "[store] d.vmdk", id="vsphere"),
    ],
)
def test_csi_volume_handle(pv: PersistentVolume, handle: str) -> None:
    assert translate(pv)[0] == handle


@pytest.mark.parametrize(
    ("pv", "terms"),
    [
        pytest.param(volume(GCE), [], id="no labels, no affinity"),
        pytest.param(volume(GCE, {ZONE: "a"}), [{GCE_ZONE: ["a"]}], id="zone from the label"),
        pytest.param(volume(GCE, {ZONE: "x-a-1__x-a-0"}), [{GCE_ZONE: ["x-a-0", "x-a-1"]}], id="several zones"),
        pytest.param(volume(GCE, None, {ZONE: ["a"]}), [{GCE_ZONE: ["a"]}], id="zone from the affinity"),
        pytest.param(
            volume(GCE, {ZONE: "b"}, {ZONE: ["a"]}, {"disk": ["ssd"]}),
            [{GCE_ZONE: ["a"]}, {"disk": ["ssd"]}],
            id="affinity takes precedence over labels",
        ),
        pytest.param(
            volume(GCE, None, {BETA_ZONE: ["a"], BETA_REGION: ["r"]}),
            [{GCE_ZONE: ["a"], REGION: ["r"]}],
            id="beta region is renamed with a beta zone",
        ),
        pytest.param(
            volume(GCE, None, {ZONE: ["a"], BETA_REGION: ["r"]}),
            [{GCE_ZONE: ["a"], BETA_REGION: ["r"]}],
            id="beta region is kept with a GA zone",
        ),
        pytest.param(
            volume(GCE, {BETA_ZONE: "a"}, {BETA_REGION: ["r"]}),
            [{REGION: ["r"], GCE_ZONE: ["a"]}],
            id="zone by label, region by affinity",
        ),
        pytest.param(
            volume(GCE, {ZONE: "b"}, {ZONE: []}),
            [{ZONE: [], GCE_ZONE: ["b"]}],
            id="affinity without zone values",
        ),
        pytest.param(
            volume({"azureDisk": {"diskURI": "u"}}, {ZONE: "a"}, {ZONE: ["a"]}),
            [{ZONE: ["a"]}],
            id="azure disk affinity is unchanged",
        ),
        pytest.param(
            volume(VSPHERE, {ZONE: "a", REGION: "r"}),
            [{VSPHERE_ZONE: ["a"], VSPHERE_REGION: ["r"]}],
            id="vsphere has regions",
        ),
        pytest.param(
            volume(VSPHERE, None, {ZONE: ["a"], REGION: ["r"]}),
            [{VSPHERE_ZONE: ["a"], VSPHERE_REGION: ["r"]}],
            id="vsphere by affinity",
        ),
    ],
)
def test_topology_from_affinity_or_labels(pv: PersistentVolume, terms: list[dict[str, Any]]) -> None:
    assert translate(pv)[1] == terms


@pytest.mark.parametrize(
    ("pv", "problem"),
    [
        pytest.param(
            volume(GCE, {ZONE: "us-a-1__us-b-1"}),
            "failed to get region from zones: multiple or no regions gotten from zones, got: map[us-a:{} us-b:{}]",
            id="gce zones of two regions",
        ),
        pytest.param(
            volume({"awsElasticBlockStore": {"volumeID": "aws://us-a/x"}}),
            "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume (aws://us-a/x)",
            id="ebs",
        ),
        pytest.param(
            volume({"azureDisk": {"diskURI": "u", "kind": "Dedicated"}}),
            "kind(Dedicated) is not supported in csi migration",
            id="azure disk",
        ),
        pytest.param(
            volume({"azureFile": {"secretName": "s", "shareName": "x"}}),
            "could not find a secret namespace in PersistentVolumeSource or ClaimRef",
            id="azure file without secret namespace",
        ),
    ],
)
def test_translation_error(pv: PersistentVolume, problem: str) -> None:
    with pytest.raises(TranslationError) as error:
        translate(pv)
    assert str(error.value) == problem


def test_azure_file_uses_namespace_of_claim() -> None:
    source = {"azureFile": {"secretName": "s", "shareName": "x"}}
    assert translate(volume(source, claimRef={"namespace": "default", "name": "c"}))[0] == "#s#x"


def test_azure_file_uses_its_secret_namespace() -> None:
    source = {"azureFile": {"secretName": "s", "shareName": "x", "secretNamespace": "vault"}}
    assert translate(volume(source))[0] == "#s#x"


def test_inline_volume_has_no_zone() -> None:
    inline = convert(Volume, {"name": "v", **GCE})
    plugin = in_tree_plugin(inline)
    assert plugin is not None
    assert inline_volume_handle(inline, plugin) == "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d"


@pytest.mark.parametrize("source", ["azureFile", "vsphereVolume", "portworxVolume", "azureDisk", "cinder"])
def test_inline_volume_of_each_migrated_plugin(source: str) -> None:
    assert in_tree_plugin(convert(Volume, {"name": "v", source: {}})) is not None


def test_zones_of_a_regional_disk_must_have_the_form_of_gce() -> None:
    disk = volume({"gcePersistentDisk": {"pdName": "disk"}}, {BETA_ZONE: "us-central1__us-central2"})
    plugin = in_tree_plugin(disk.spec)
    assert plugin is not None
    with pytest.raises(TranslationError, match=r"zone in unexpected format, expected: .* got: us-central"):
        translate_volume(disk, plugin)
