"""VolumeBinder: the claims of a pod, and what is decided for them on a node."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from kubeloop.kube.objects.api_types import LabelSelector, Node, ObjectMeta, OwnerReference, Pod, convert
from kubeloop.kube.objects.storage_types import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeStatus,
    StorageClass,
    VolumeNodeAffinity,
)
from kubeloop.kube.values.quantities import value
from kubeloop.scheduler.api.listers import Listers
from kubeloop.scheduler.plugins.volumes import volume_binder
from kubeloop.scheduler.plugins.volumes.csi_migration import TranslationError
from kubeloop.scheduler.plugins.volumes.volume_binder import (
    ERR_REASON_BIND_CONFLICT,
    ERR_REASON_NODE_CONFLICT,
    ERR_REASON_NOT_ENOUGH_SPACE,
    ERR_REASON_PV_NOT_EXIST,
    VolumeBinder,
    VolumeCandidates,
    VolumeChoice,
    affinity_matcher,
    matches_node,
    node_affinity_for,
    with_claim_ref,
)
from kubeloop.scheduler.plugins.volumes.volume_claims import SELECTED_NODE, ClaimError
from support.objects.plugin_volumes import make_claim, make_volume
from support.scheduling.plugin_cluster import make_node, make_pod

NOW = datetime(2026, 1, 1, tzinfo=UTC)

ZONE = "topology.kubernetes.io/zone"


def by_capacity_and_name(volume: PersistentVolume) -> tuple[int, str]:
    return value(volume.spec.capacity["storage"]), volume.metadata.name


@pytest.mark.parametrize("seed", range(20))
def test_smallest_accessible_volume_is_chosen(seed: int, node: Callable[..., Any]) -> None:
    rng = random.Random(seed)
    keys = ("kubernetes.io/hostname", ZONE, "rack")

    def random_affinity() -> list[tuple[str, str, list[str]]] | None:
        operators = rng.choice([["In"], ["In", "NotIn"], ["NotIn"], ["Exists"]])
        if rng.random() < 0.2:
            return None
        values = ["n0", "n1", "a", "b"]
        return [
            (rng.choice(keys), operator, [] if operator == "Exists" else rng.sample(values, rng.randrange(1, 3)))
            for operator in operators
        ]

    volumes = [
        make_volume(f"pv{number}", affinity=random_affinity(), capacity={"storage": f"{rng.randrange(1, 6)}Gi"})
        for number in range(20)
    ]
    claim = make_claim("c", storage="2Gi")
    candidates = VolumeCandidates(claim)
    for candidate in volumes:
        candidates.replace(None, candidate)
    for number in range(8):
        target = node(f"n{number % 3}", labels={ZONE: rng.choice("ab")} | ({"rack": "a"} if rng.random() < 0.5 else {}))
        chosen = {f"pv{rng.randrange(20)}" for _ in range(rng.randrange(4))}
        fitting = [
            volume
            for volume in volumes
            if volume.metadata.name not in chosen
            and value(volume.spec.capacity["storage"]) >= 2 << 30
            and matches_node(volume.spec.node_affinity, target)
        ]
        smallest = min(fitting, key=by_capacity_and_name, default=None)
        assert candidates.find(target, chosen) is smallest


PREBOUND = {"name": "c", "namespace": "default", "uid": "c"}
HDD = {"matchLabels": {"disk": "hdd"}}


def suitable(claim_changes: dict[str, Any], *volumes: PersistentVolume) -> str | None:
    """Return the name of the volume that is chosen for a claim of 2Gi, on a node without labels."""
    claim = make_claim("c", storage="2Gi")
    spec = msgspec.structs.replace(claim.spec, **claim_changes)
    listers = Listers()
    put(listers.persistent_volumes, *volumes)
    choice = VolumeBinder(listers).choice(msgspec.structs.replace(claim, spec=spec))
    chosen = choice.find(make_node("n"), set())
    return None if chosen is None else chosen.metadata.name


def volume(name: str = "pv", *, labels: dict[str, str] | None = None, phase: str = "Available", **spec: Any) -> Any:
    made = make_volume(name, **{"capacity": {"storage": "2Gi"}, **spec})
    metadata = msgspec.structs.replace(made.metadata, labels=labels or {})
    return msgspec.structs.replace(made, metadata=metadata, status=PersistentVolumeStatus(phase=phase))


@pytest.mark.parametrize(
    ("claim_changes", "candidate", "suits"),
    [
        pytest.param({}, volume(), True, id="same size"),
        pytest.param({}, volume(capacity={"storage": "2047Mi"}), False, id="too small"),
        pytest.param({}, volume(capacity={}), False, id="without capacity"),
        pytest.param({"volume_mode": "Block"}, volume(volumeMode="Block"), True, id="same mode"),
        pytest.param({"volume_mode": "Block"}, volume(), False, id="other mode"),
        pytest.param({"volume_mode": "Filesystem"}, volume(), True, id="default mode of the volume"),
        pytest.param({}, volume(volumeMode="Filesystem"), True, id="default mode of the claim"),
        pytest.param({"volume_attributes_class_name": "gold"}, volume(), False, id="no attributes class"),
        pytest.param({}, volume(volumeAttributesClassName="gold"), False, id="another attributes class"),
        pytest.param({"volume_attributes_class_name": ""}, volume(), True, id="empty attributes class"),
        pytest.param({"storage_class_name": "other"}, volume(), False, id="other class"),
        pytest.param({"access_modes": ("ReadOnlyMany",)}, volume(), False, id="other access mode"),
        pytest.param({}, volume(accessModes=["ReadOnlyMany", "ReadWriteOnce"]), True, id="more access modes"),
        pytest.param({"selector": convert(LabelSelector, HDD)}, volume(labels={"disk": "hdd"}), True, id="selected"),
        pytest.param({"selector": convert(LabelSelector, HDD)}, volume(labels={"disk": "ssd"}), False, id="unselected"),
        pytest.param({}, volume(phase="Released"), False, id="released"),
        pytest.param({}, volume(claimRef={**PREBOUND, "name": "other"}), False, id="of another claim"),
        pytest.param({}, volume(claimRef={**PREBOUND, "uid": "old"}), False, id="of a former claim"),
        pytest.param({}, volume(claimRef=PREBOUND, phase="Bound"), True, id="prebound"),
        pytest.param({}, volume(claimRef={**PREBOUND, "uid": ""}), True, id="prebound without uid"),
        pytest.param({}, volume(claimRef=PREBOUND, storageClassName="x"), False, id="prebound, of another class"),
        pytest.param({}, volume(claimRef=PREBOUND, capacity={"storage": "1Gi"}), False, id="prebound, too small"),
    ],
)
def test_volume_suits_a_claim(claim_changes: dict[str, Any], candidate: PersistentVolume, suits: bool) -> None:
    assert suitable(claim_changes, candidate) == ("pv" if suits else None)


def test_volume_in_deletion_suits_no_claim() -> None:
    deleted = volume()
    metadata = msgspec.structs.replace(deleted.metadata, deletion_timestamp=NOW)
    assert suitable({}, msgspec.structs.replace(deleted, metadata=metadata)) is None


def test_prebound_volume_is_preferred_and_the_smallest_else() -> None:
    small, large = volume("b-small"), volume("a-large", capacity={"storage": "3Gi"})
    assert suitable({}, large, small) == "b-small"
    assert suitable({}, large, volume("c-small"), small) == "b-small", "the name breaks ties"
    assert suitable({}, small, volume("z", claimRef=PREBOUND, capacity={"storage": "9Gi"})) == "z"
    elsewhere = volume("z", claimRef=PREBOUND, affinity=[(ZONE, "In", ["b"])])
    assert suitable({}, small, elsewhere) is None, "no other volume instead of the prebound one"


def test_chosen_volumes_are_skipped() -> None:
    volumes = [volume("a"), volume("b", affinity=[(ZONE, "In", ["x"])])]
    candidates = VolumeCandidates(make_claim("c"))
    for candidate in volumes:
        candidates.replace(None, candidate)
    target = make_node("n", labels={ZONE: "x"})
    assert [candidates.find(target, chosen) for chosen in ({"a"}, {"a", "b"})] == [volumes[1], None]
    assert VolumeChoice(volume(claimRef=PREBOUND), None).find(target, {"pv"}) is None


def test_invalid_selector_of_a_claim_is_an_error() -> None:
    selector = convert(LabelSelector, {"matchExpressions": [{"key": "disk", "operator": "Is"}]})
    with pytest.raises(ClaimError, match="error creating internal label selector for claim: default/c"):
        suitable({"selector": selector}, volume())


@pytest.mark.parametrize(
    ("required", "matches"),
    [
        pytest.param(None, True, id="no affinity"),
        pytest.param([(ZONE, "In", ["a"])], True, id="label of the node"),
        pytest.param([(ZONE, "In", ["b"])], False, id="other value"),
        pytest.param([(ZONE, "Is", ["a"])], False, id="cannot be parsed"),
    ],
)
def test_affinity_of_a_volume_matches_labels(required: Any, matches: bool) -> None:
    affinity = make_volume("pv", affinity=required).spec.node_affinity
    assert matches_node(affinity, make_node("n", labels={ZONE: "a"})) is matches
    assert matches_node(VolumeNodeAffinity(), make_node("n")) is True


def test_matcher_is_cached_per_affinity_object() -> None:
    first, second = (make_volume("pv", affinity=[(ZONE, "In", [zone])]).spec.node_affinity for zone in "ab")
    assert first is not None
    assert second is not None
    assert affinity_matcher(first) is affinity_matcher(first)
    assert affinity_matcher(first) is not affinity_matcher(second)


# --- decisions for a pod's claims on one node ---------------------------------------------------------------------


@pytest.fixture
def binder() -> VolumeBinder:
    """Return a binder with the StorageClass "wait", whose driver "csi.example" does not publish capacities."""
    listers = Listers()
    put(listers.storage_classes, convert(StorageClass, CLASS))
    return VolumeBinder(listers)


CLASS: dict[str, Any] = {
    "metadata": {"name": "wait"},
    "provisioner": "csi.example",
    "volumeBindingMode": "WaitForFirstConsumer",
}


def put(store: Any, *objects: Any) -> None:
    for obj in objects:
        store.put(obj.key, obj)


def pod_with_claims(*names: str, ephemeral: bool = False) -> Pod:
    source = {"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
    volumes = [
        {"name": name, **(source if ephemeral else {"persistentVolumeClaim": {"claimName": name}})} for name in names
    ]
    return make_pod("p", volumes=volumes)


def changed_claim(claim: PersistentVolumeClaim, *, phase: str = "Pending", **metadata: Any) -> PersistentVolumeClaim:
    status = msgspec.structs.replace(claim.status, phase=phase)
    changed = msgspec.structs.replace(claim.metadata, **metadata)
    return msgspec.structs.replace(claim, metadata=changed, status=status)


@pytest.mark.parametrize(
    ("claim", "ephemeral", "message"),
    [
        pytest.param(make_claim("data"), False, None, id="usable"),
        pytest.param(None, False, 'persistentvolumeclaim "data" not found', id="missing"),
        pytest.param(None, True, "waiting for ephemeral volume controller to create .*p-data", id="not yet created"),
        pytest.param(
            changed_claim(make_claim("data", "gone"), phase="Lost"),
            False,
            'persistentvolumeclaim "data" bound to non-existent persistentvolume "gone"',
            id="lost",
        ),
        pytest.param(
            changed_claim(make_claim("data"), deletion_timestamp=NOW), False, '"data" is being deleted', id="deleted"
        ),
        pytest.param(make_claim("p-data"), True, "PVC default/p-data was not created for pod", id="of another owner"),
        pytest.param(
            changed_claim(
                make_claim("p-data"),
                owner_references=(OwnerReference(kind="Pod", name="p", uid="p", controller=True),),
            ),
            True,
            None,
            id="owned by the pod",
        ),
    ],
)
def test_claims_of_a_pod_are_checked(binder: VolumeBinder, claim: Any, ephemeral: bool, message: str | None) -> None:
    if claim is not None:
        put(binder._listers.persistent_volume_claims, claim)
    pod = pod_with_claims("data", ephemeral=ephemeral)
    with contextlib.nullcontext() if message is None else pytest.raises(ClaimError, match=message):
        assert binder.check_claims(pod) is True
    assert binder.check_claims(make_pod("without")) is False


def test_claims_are_sorted_by_their_binding(binder: VolumeBinder) -> None:
    immediate = convert(StorageClass, {**CLASS, "metadata": {"name": "now"}, "volumeBindingMode": "Immediate"})
    put(binder._listers.storage_classes, immediate)
    now = make_claim("now")
    claims = [
        make_claim("bound", "pv"),
        make_claim("delayed"),
        changed_claim(make_claim("named", "pv"), annotations={}),  # not bound yet, but to a named volume
        msgspec.structs.replace(now, spec=msgspec.structs.replace(now.spec, storage_class_name="now")),
    ]
    put(binder._listers.persistent_volume_claims, *claims)
    result = binder.pod_claims(pod_with_claims("now", "bound", "delayed", "named"))
    names = [[claim.metadata.name for claim in group] for group in (result.bound, result.delayed, result.immediate)]
    assert names == [["bound"], ["delayed"], ["now", "named"]]
    with pytest.raises(ClaimError, match='error getting PVC "default/gone": could not find it'):
        binder.pod_claims(pod_with_claims("gone"))


def found(binder: VolumeBinder, node: Node, *claims: PersistentVolumeClaim) -> tuple[Any, ...]:
    """Return reasons, names of the chosen volumes by claim, and claims to provision."""
    put(binder._listers.persistent_volume_claims, *claims)
    pod_claims = binder.pod_claims(pod_with_claims(*(claim.metadata.name for claim in claims)))
    result = binder.find_pod_volumes(pod_claims, node)
    static = {claim.metadata.name: chosen.metadata.name for chosen, claim in result.static_bindings}
    return result.conflict_reasons, static, [claim.metadata.name for claim in result.dynamic_provisions]


@pytest.mark.parametrize(
    ("stored", "reasons"),
    [
        pytest.param([volume("pv")], [], id="accessible"),
        pytest.param([], [ERR_REASON_PV_NOT_EXIST], id="missing"),
        pytest.param([volume("pv", affinity=[(ZONE, "In", ["b"])])], [ERR_REASON_NODE_CONFLICT], id="elsewhere"),
    ],
)
def test_bound_volume_must_be_accessible(binder: VolumeBinder, stored: Any, reasons: list[str]) -> None:
    put(binder._listers.persistent_volumes, *stored)
    assert found(binder, make_node("n", labels={ZONE: "a"}), make_claim("data", "pv")) == (reasons, {}, [])


def test_first_conflict_of_bound_claims_is_the_reason(binder: VolumeBinder) -> None:
    put(binder._listers.persistent_volumes, volume("pv", affinity=[(ZONE, "In", ["b"])]))
    claims = make_claim("data", "pv"), make_claim("lost", "gone")
    assert found(binder, make_node("n"), *claims)[0] == [ERR_REASON_NODE_CONFLICT]
    assert found(binder, make_node("n"), *claims[::-1])[0] == [ERR_REASON_PV_NOT_EXIST]


@pytest.mark.parametrize(
    ("selected", "expected"),
    [
        pytest.param(None, ([], {"data": "pv"}, []), id="no node selected: bound"),
        pytest.param("n", ([], {}, ["data"]), id="this node selected: provisioned"),
        pytest.param("other", ([ERR_REASON_BIND_CONFLICT], {}, []), id="another node selected"),
    ],
)
def test_selected_node_of_a_claim(binder: VolumeBinder, selected: str | None, expected: Any) -> None:
    put(binder._listers.persistent_volumes, volume("pv"))
    annotations = {} if selected is None else {SELECTED_NODE: selected}
    assert found(binder, make_node("n"), changed_claim(make_claim("data"), annotations=annotations)) == expected


def test_smaller_claim_gets_the_smaller_volume(binder: VolumeBinder) -> None:
    volumes = volume("small", capacity={"storage": "1Gi"}), volume("large", capacity={"storage": "2Gi"})
    put(binder._listers.persistent_volumes, *volumes)
    claims = make_claim("a", storage="2Gi"), make_claim("b", storage="1Gi"), make_claim("c", storage="1Gi")
    assert found(binder, make_node("n"), *claims) == ([], {"b": "small", "c": "large"}, ["a"])


TOPOLOGY = [
    {"matchLabelExpressions": [{"key": ZONE, "values": ["a", "b"]}, {"key": "rack", "values": ["1"]}]},
    {"matchLabelExpressions": [{"key": ZONE, "values": ["c"]}]},
]


@pytest.mark.parametrize(
    ("changes", "labels", "provisioned"),
    [
        pytest.param({}, {}, True, id="without topology"),
        pytest.param({"provisioner": "kubernetes.io/no-provisioner"}, {}, False, id="without provisioner"),
        pytest.param({"provisioner": ""}, {}, False, id="empty provisioner"),
        pytest.param({"allowedTopologies": TOPOLOGY}, {ZONE: "b", "rack": "1"}, True, id="first term"),
        pytest.param({"allowedTopologies": TOPOLOGY}, {ZONE: "b", "rack": "2"}, False, id="half of a term"),
        pytest.param({"allowedTopologies": TOPOLOGY}, {ZONE: "c"}, True, id="second term"),
        pytest.param({"allowedTopologies": TOPOLOGY}, {}, False, id="no label"),
        pytest.param({"allowedTopologies": [{}]}, {}, False, id="empty term"),
    ],
)
def test_volume_is_provisioned_in_allowed_topologies(
    binder: VolumeBinder, changes: dict[str, Any], labels: dict[str, str], provisioned: bool
) -> None:
    put(binder._listers.storage_classes, convert(StorageClass, {**CLASS, **changes}))
    expected = ([], {}, ["data"]) if provisioned else ([ERR_REASON_BIND_CONFLICT], {}, [])
    assert found(binder, make_node("n", labels=labels), make_claim("data")) == expected


@pytest.mark.parametrize(
    ("published", "capacity", "provisioned"),
    [
        pytest.param(True, {"capacity": "2Gi"}, True, id="enough"),
        pytest.param(True, {"capacity": "1Gi"}, True, id="just enough"),
        pytest.param(True, {"capacity": "1023Mi"}, False, id="too little"),
        pytest.param(True, {"capacity": "2Gi", "maximumVolumeSize": "1023Mi"}, False, id="volume too large"),
        pytest.param(True, {"capacity": "1Mi", "maximumVolumeSize": "1Gi"}, True, id="maximum size counts"),
        pytest.param(True, {}, False, id="no size"),
        pytest.param(True, {"capacity": "2Gi", "storageClassName": "other"}, False, id="of another class"),
        pytest.param(True, {"capacity": "2Gi", "nodeTopology": None}, False, id="accessible from no node"),
        pytest.param(True, {"capacity": "2Gi", "nodeTopology": {"matchLabels": {ZONE: "b"}}}, False, id="elsewhere"),
        pytest.param(
            True,
            {"capacity": "2Gi", "nodeTopology": {"matchExpressions": [{"key": "a", "operator": "Is"}]}},
            False,
            id="invalid topology",
        ),
        pytest.param(False, {}, True, id="capacities are not published"),
    ],
)
def test_volume_is_provisioned_with_enough_capacity(
    binder: VolumeBinder, published: bool, capacity: dict[str, Any], provisioned: bool
) -> None:
    driver = {"metadata": {"name": "csi.example"}, "spec": {"storageCapacity": published}}
    put(binder._listers.csi_drivers, convert(CSIDriver, driver))
    body = {"metadata": {"name": "c"}, "storageClassName": "wait", "nodeTopology": {}, **capacity}
    put(binder._listers.csi_storage_capacities, convert(CSIStorageCapacity, body))
    node, claim = make_node("n", labels={ZONE: "a"}), make_claim("data")
    expected = ([], {}, ["data"]) if provisioned else ([ERR_REASON_NOT_ENOUGH_SPACE], {}, [])
    assert found(binder, node, claim) == expected
    found_capacity = binder.node_capacity(claim, node)
    assert (found_capacity is not None) == (published and provisioned)
    without_size = msgspec.structs.replace(claim.spec, resources=type(claim.spec.resources)())
    unsized = msgspec.structs.replace(claim, spec=without_size)
    assert binder.node_capacity(unsized, node) is None
    assert found(binder, node, unsized) == ([], {}, ["data"]), "a claim without size is provisioned everywhere"


@pytest.mark.parametrize(
    ("class_name", "message"),
    [
        pytest.param("", 'no class for claim "default/data"', id="no class"),
        pytest.param("gone", 'failed to find storage class "gone"', id="missing class"),
    ],
)
def test_claim_of_no_class_has_no_capacity(binder: VolumeBinder, class_name: str, message: str) -> None:
    claim = make_claim("data")
    spec = msgspec.structs.replace(claim.spec, storage_class_name=class_name)
    with pytest.raises(ClaimError, match=message):
        binder.node_capacity(msgspec.structs.replace(claim, spec=spec), make_node("n"))


@pytest.mark.parametrize(
    ("annotations", "changes", "published", "depends"),
    [
        pytest.param({}, {}, False, False, id="the same everywhere"),
        pytest.param({SELECTED_NODE: "n"}, {}, False, True, id="selected node"),
        pytest.param({}, {"allowedTopologies": TOPOLOGY}, False, True, id="topology"),
        pytest.param({}, {}, True, True, id="capacities"),
    ],
)
def test_provisioning_depends_on_the_node(
    binder: VolumeBinder, annotations: Any, changes: Any, published: bool, depends: bool
) -> None:
    listers = binder._listers
    driver = {"metadata": {"name": "csi.example"}, "spec": {"storageCapacity": published}}
    put(listers.csi_drivers, convert(CSIDriver, driver))
    put(listers.storage_classes, convert(StorageClass, {**CLASS, **changes}))
    put(listers.persistent_volume_claims, changed_claim(make_claim("data"), annotations=annotations))
    assert binder.provisioning_depends_on_node(binder.pod_claims(pod_with_claims("data"))) is depends


def test_assumed_decisions_last_until_the_informer_shows_a_change(binder: VolumeBinder) -> None:
    listers = binder._listers
    put(listers.persistent_volumes, volume("pv"))
    put(listers.persistent_volume_claims, make_claim("static"), make_claim("dynamic"))
    pod_claims = binder.pod_claims(pod_with_claims("static", "dynamic"))
    decisions = binder.find_pod_volumes(pod_claims, make_node("n"))
    binder.assume(decisions, "n")
    assumed, claim = binder.volume("pv"), binder.claim("default/static")
    assert assumed is not None
    assert assumed.spec.claim_ref is not None
    assert (assumed.spec.claim_ref.name, assumed.metadata.annotations) == (
        "dynamic",
        {"pv.kubernetes.io/bound-by-controller": "yes"},
    )
    assert claim is not None
    assert claim.metadata.annotations == {SELECTED_NODE: "n"}
    binder.forget(decisions)
    assert binder.volume("pv") is listers.persistent_volumes.get("pv")
    assert binder.claim("default/static") is listers.persistent_volume_claims.get("default/static")
    binder.assume(decisions, "n")
    newer = msgspec.structs.replace(volume("pv"), metadata=ObjectMeta(name="pv", resource_version="7"))
    put(listers.persistent_volumes, newer)
    assert binder.volume("pv") is newer
    listers.persistent_volumes.remove("pv")
    assert binder.volume("pv") is None


def test_prebound_volume_gets_no_annotation_of_the_controller() -> None:
    bound = with_claim_ref(volume(claimRef={**PREBOUND, "uid": ""}), make_claim("c"))
    assert bound.spec.claim_ref is not None
    assert (bound.spec.claim_ref.uid, bound.metadata.annotations) == ("c", {})


def test_matchers_of_affinities_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volume_binder, "_MAX_MATCHERS", 2)
    monkeypatch.setattr(volume_binder, "_matchers", {})
    affinities = [make_volume(f"v{n}", affinity=[(ZONE, "In", [f"z{n}"])]).spec.node_affinity for n in range(5)]
    for number, affinity in enumerate(affinities):
        assert affinity is not None
        matcher = affinity_matcher(affinity)
        assert affinity_matcher(affinity) is matcher
        assert matcher.matches("n", {ZONE: f"z{number}"})
        assert len(volume_binder._matchers) <= 2


@pytest.mark.parametrize(
    ("driver", "zone", "label"),
    [
        pytest.param("", "us-east-1a", ZONE, id="not migrated on the node: as it is"),
        pytest.param("kubernetes.io/aws-ebs", "us-east-1a", "topology.ebs.csi.aws.com/zone", id="migrated: translated"),
    ],
)
def test_affinity_of_an_in_tree_volume_is_that_of_its_driver_where_it_is_migrated(
    driver: str, zone: str, label: str
) -> None:
    disk = make_volume("pv", affinity=[(ZONE, "In", [zone])], awsElasticBlockStore={"volumeID": "vol-1"})
    metadata = {"name": "n", "annotations": {"storage.alpha.kubernetes.io/migrated-plugins": driver}}
    affinity = node_affinity_for(disk, convert(CSINode, {"metadata": metadata}))
    assert affinity is not None
    assert affinity.required is not None
    (term,) = affinity.required.node_selector_terms
    assert [(entry.key, [*entry.values]) for entry in term.match_expressions] == [(label, [zone])]


def test_volume_that_cannot_be_translated_is_an_error() -> None:
    disk = make_volume("pv", azureDisk={"diskName": "d", "diskURI": "u", "kind": "Dedicated"})
    annotations = {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/azure-disk"}
    csi_node = convert(CSINode, {"metadata": {"name": "n", "annotations": annotations}})
    with pytest.raises(TranslationError, match=r"could not translate pv: .*kind\(Dedicated\) is not supported"):
        node_affinity_for(disk, csi_node)
