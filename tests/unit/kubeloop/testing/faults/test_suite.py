"""check: a correct operator passes, and each kind of mistake is found, shrunk and described."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kubeloop.controllers.api import (
    Controller,
    For,
    NotFound,
    Owns,
    Request,
    Result,
    ServerUnreachable,
    Watches,
    by_label,
    set_controller_reference,
    to_self,
)
from kubeloop.controllers.api.resources import CONFIG_MAPS, DEPLOYMENTS, SECRETS
from kubeloop.testing import faults
from kubeloop.testing.faults.suite import REPLAY_VARIABLE, RunId
from support.controllers.sites import CRD, SITES, Sites, site

SCENARIO = (
    faults.apply(CRD),
    faults.apply(site(replicas=1)),
    faults.apply(site(replicas=3, text="new")),
    faults.delete("site/blog"),
)


def with_empty_dns() -> list[Any]:
    return [functools.partial(Sites, records=set())]


class Certificates(Controller):
    """Creates a Secret of a random name for each Site, then a condition: after a crash between both a second Secret."""

    name = "certificates"
    watches = (For(SITES), Owns(SECRETS))

    async def reconcile(self, request: Request) -> Result:
        site = self.cache.get(SITES, request)
        if site is not None and not site.status.conditions:
            metadata = {"generateName": "tls-", "namespace": request.namespace}
            secret = set_controller_reference(site, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
            await self.client.create(secret)
            await self.client.patch_status(site, {"conditions": [{"type": "Issued", "status": "True"}]})
        return None


class Forgetful(Sites):
    """Records in memory which Sites it has applied, and does not correct what others change."""

    def __init__(self, handle: Any) -> None:
        super().__init__(handle)
        self._done: set[tuple[str, int]] = set()

    async def reconcile(self, request: Request) -> Result:
        site = self.cache.get(SITES, request)
        if site is None or (site.metadata.uid, site.metadata.generation) in self._done:
            return None
        self._done.add((site.metadata.uid, site.metadata.generation))
        await self.apply(site, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": site.metadata.name}})
        return None


class Restless(Sites):
    async def reconcile(self, request: Request) -> Result:
        site = self.cache.get(SITES, request)
        if site is not None:
            annotations = {"seen": str(self.clock.now())}
            manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "annotations": annotations}}
            await self.apply(site, manifest)
            return 20.0
        return None


class Failing(Sites):
    async def reconcile(self, request: Request) -> Result:
        raise KeyError("spec")


def failure_of(check: Callable[[], object]) -> str:
    with pytest.raises(faults.FaultsFound) as failed:
        check()
    return str(failed.value)


def test_correct_operator_passes():
    summary = faults.check(with_empty_dns, SCENARIO, runs=24, seed=1)
    assert summary.runs >= 30
    assert summary.writes > 100


def test_second_object_after_a_crash_is_described_in_a_sentence():
    text = failure_of(lambda: faults.check([Certificates], [faults.apply(CRD), faults.apply(site())], runs=0, seed=1))
    first, *_ = text.splitlines()
    assert first == (
        "after a crash between the create of Secret tls- and the status write of Site blog, "
        "a second Secret default/tls-* was created and never deleted"
    )
    assert "201 tls-" in text


def test_failure_is_shrunk_and_can_be_repeated(monkeypatch):
    scenario = [*SCENARIO[:3], faults.apply({**site("other")})]
    text = failure_of(lambda: faults.check([Certificates], scenario, runs=0, seed=1))
    replay = text.rpartition(f"{REPLAY_VARIABLE}='")[2].partition("'")[0]
    run_id = msgspec.json.decode(replay, type=RunId)
    assert len(run_id.plan.faults) == 1
    assert run_id.steps == (0, 1)
    assert "pytest tests" in text
    monkeypatch.setenv(REPLAY_VARIABLE, replay)
    assert failure_of(lambda: faults.check([Certificates], scenario)).splitlines()[0] == text.splitlines()[0]


def test_state_in_memory_that_loses_changes_is_found():
    text = failure_of(lambda: faults.check([Forgetful], SCENARIO[:2], classes=["unobservable", "refused"], seed=1))
    assert "ConfigMap default/blog does not exist in the end" in text


def test_writes_although_nothing_changes_are_found():
    text = failure_of(lambda: faults.check([Restless], SCENARIO[:2], runs=0))
    assert text.startswith("fails without faults: the controllers go on writing: apply of ConfigMap c")


def test_error_of_the_program_is_found():
    assert "KeyError('spec')" in failure_of(lambda: faults.check([Failing], SCENARIO[:2], runs=0))


def test_invariants_and_final_checks_are_the_author_s():
    def never_two_replicas(cluster: faults.FaultCluster) -> list[str]:
        return [
            f"Deployment {deployment['metadata']['name']} has 3 replicas"
            for deployment in cluster.stored(DEPLOYMENTS)
            if deployment["spec"]["replicas"] == 3
        ]

    def no_config_map(cluster: faults.FaultCluster) -> str | None:
        names = [obj["metadata"]["name"] for obj in cluster.stored(CONFIG_MAPS, "default")]
        return "there is a ConfigMap" if "blog" in names else None

    text = failure_of(lambda: faults.check(with_empty_dns, SCENARIO[:3], [never_two_replicas], runs=0))
    assert "Deployment blog has 3 replicas" in text
    text = failure_of(lambda: faults.check(with_empty_dns, SCENARIO[:2], final=[no_config_map], runs=0))
    assert "there is a ConfigMap" in text


def test_functions_are_steps_and_built_in_controllers_run():
    async def scale_up(cluster: faults.FaultCluster) -> None:
        await cluster.apply(site(replicas=2))
        await cluster.wait_for("deployment/blog", "create", timeout=600)

    controllers = [functools.partial(Sites, records=set()), "deployment"]
    summary = faults.check(controllers, [faults.apply(CRD), scale_up], runs=2, classes=["slow"], seed=3)
    assert summary.runs > 10


SOURCE: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"copied": ""}}}
CLUSTERS_SCENARIO = (
    faults.apply({**SOURCE, "data": {"text": "old"}}),
    faults.apply({**SOURCE, "data": {"text": "new"}}),
    faults.apply({**SOURCE, "metadata": {**SOURCE["metadata"], "name": "b"}}),
    faults.delete("configmap/b"),
)


class Copies(Controller):
    """Maintains a copy of each labelled ConfigMap in the cluster "west"."""

    name = "copies"
    watches = (
        For(CONFIG_MAPS, label_selector="copied"),
        Watches(CONFIG_MAPS, to_self, cluster="west", label_selector="copy"),
    )

    async def reconcile(self, request: Request) -> Result:
        west, source = self.cluster("west"), self.cache.get(CONFIG_MAPS, request)
        copy: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": request.name}}
        copy["metadata"] |= {"namespace": request.namespace, "labels": {"copy": ""}}
        if source is not None:
            await west.client.apply({**copy, "data": source.get("data", {})})
        elif west.cache.get(CONFIG_MAPS, request) is not None:
            await west.client.delete(copy)
        return None


class RandomCopies(Copies):
    """Creates a copy of a random name, which it looks up in a cache that may be behind or incomplete."""

    watches = (
        For(CONFIG_MAPS, label_selector="copied"),
        Watches(CONFIG_MAPS, by_label("of"), cluster="west"),
    )

    async def reconcile(self, request: Request) -> Result:
        west, source = self.cluster("west"), self.cache.get(CONFIG_MAPS, request)
        if source is not None and "copied-at" not in source["metadata"].get("annotations", {}):
            metadata = {"generateName": "copy-", "namespace": request.namespace, "labels": {"of": request.name}}
            await west.client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
            source_copy = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": request.name}}
            source_copy["metadata"] |= {"namespace": request.namespace, "annotations": {"copied-at": "west"}}
            await self.client.apply(source_copy)
        return None


class GivesUp(Copies):
    """Does not retry when the other cluster is not reachable."""

    async def reconcile(self, request: Request) -> Result:
        try:
            return await super().reconcile(request)
        except ServerUnreachable:
            return None


class WritesOnly(Controller):
    """Writes to a cluster that it does not watch."""

    name = "writes-only"
    watches = (For(CONFIG_MAPS, label_selector="copied"),)

    async def reconcile(self, request: Request) -> Result:
        west = await self.connect(context="west")
        try:
            await west.get(CONFIG_MAPS, request)
        except NotFound:
            metadata = {"name": request.name, "namespace": request.namespace}
            await west.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        return None


def test_controller_over_two_clusters_passes():
    summary = faults.check([Copies], CLUSTERS_SCENARIO, runs=26, seed=1, clusters=["west"])
    assert summary.runs > 30
    summary = faults.check([WritesOnly], CLUSTERS_SCENARIO[:1], runs=13, seed=1, clusters=["west"])
    assert summary.writes > 10


def test_second_object_in_another_cluster_is_described():
    text = failure_of(lambda: faults.check([RandomCopies], CLUSTERS_SCENARIO[:1], runs=0, seed=1, clusters=["west"]))
    assert text.splitlines()[0] == (
        "after a crash between the create of ConfigMap copy- in cluster west and the apply of ConfigMap a, "
        "in cluster west, a second ConfigMap default/copy-* was created and never deleted"
    )
    assert "POST west:/api/v1/namespaces/default/configmaps 201" in text


def test_faults_affect_the_connections_to_one_cluster():
    checked = functools.partial(faults.check, classes=["disconnected"], seed=1, clusters=["west"])
    text = failure_of(lambda: checked([GivesUp], CLUSTERS_SCENARIO[:2]))
    assert "(cluster west), in cluster west, ConfigMap default/a" in text.splitlines()[0]


def test_checks_and_steps_read_and_write_other_clusters():
    def no_copy(cluster: faults.FaultCluster) -> list[str]:
        return [
            f"a copy of {copy['metadata']['name']}"
            for copy in cluster.cluster("west").stored(CONFIG_MAPS, "default")
            if copy["metadata"]["name"] == "a"
        ]

    text = failure_of(lambda: faults.check([Copies], CLUSTERS_SCENARIO[:1], [no_copy], runs=0, clusters=["west"]))
    assert "a copy of a" in text

    async def read_unknown_cluster(cluster: faults.FaultCluster) -> None:
        with pytest.raises(LookupError, match="there is no cluster 'east'"):
            cluster.cluster("east")

    faults.check([Copies], [read_unknown_cluster, faults.apply(SOURCE, cluster="west")], runs=0, clusters=["west"])


def test_watch_of_a_cluster_that_is_not_declared_fails():
    text = failure_of(lambda: faults.check([Copies], CLUSTERS_SCENARIO[:1], runs=0))
    assert "the test has no cluster 'west'" in text
