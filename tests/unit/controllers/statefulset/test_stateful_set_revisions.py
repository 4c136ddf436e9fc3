"""Choice of a StatefulSet's revisions. Their writes are tested with the controller."""

from __future__ import annotations

import pytest

from kubeloop.controllers.runtime.revisions.controller_history import ControllerHistory
from kubeloop.controllers.statefulset.stateful_set_plan import StatefulSetRevisions
from kubeloop.controllers.statefulset.stateful_set_revisions import (
    RevisionSync,
    choose_revision,
    current_revision,
    proposed_revision,
    revision_data,
)
from kubeloop.kube.objects.api_types import ControllerRevision, ObjectMeta, StatefulSet, convert
from support.objects.stateful_sets import stateful_set


def revision(number: int, image: str) -> ControllerRevision:
    return ControllerRevision(metadata=ObjectMeta(name=f"web-{number}"), data={"image": image}, revision=number)


def web(**status: object) -> StatefulSet:
    return convert(StatefulSet, {**stateful_set(), "status": status})


@pytest.mark.parametrize(
    ("images", "choice", "name"),
    [
        pytest.param([], "create", "web-9", id="first revision"),
        pytest.param(["a", "new"], "keep", "web-1", id="latest is equal"),
        pytest.param(["new", "a"], "roll back", "web-0", id="older one is equal"),
        pytest.param(["new", "new", "a"], "roll back", "web-1", id="latest of several equal ones"),
        pytest.param(["a", "b"], "create", "web-9", id="none is equal"),
    ],
)
def test_choose_revision(images, choice, name):
    revisions = [revision(number, image) for number, image in enumerate(images)]
    chosen = choose_revision(revisions, revision(9, "new"))
    assert (chosen[0], chosen[1].metadata.name) == (choice, name)


def test_current_revision_is_that_of_the_status():
    revisions = [revision(1, "a"), revision(2, "b")]
    assert current_revision(web(currentRevision="web-2"), revisions) is revisions[1]
    assert current_revision(web(currentRevision="web-gone"), revisions) is None


def test_proposed_revision_restores_template_and_copies_labels_and_annotations():
    body = stateful_set()
    body["metadata"]["annotations"] = {"kubernetes.io/change-cause": "new image"}
    sts = convert(StatefulSet, body)
    proposed = proposed_revision(sts, [revision(4, "a")], 0)
    assert proposed.revision == 5
    assert proposed.metadata.annotations == {"kubernetes.io/change-cause": "new image"}
    assert proposed.metadata.labels["app"] == "web"
    assert proposed.data == revision_data(sts.spec.template)
    assert proposed.data["spec"]["template"]["$patch"] == "replace"


@pytest.mark.parametrize("limit", [None, -1])
async def test_no_revision_is_deleted_without_a_valid_limit(fake_apiserver, limit):
    context = fake_apiserver.context
    body = stateful_set()
    body["spec"]["revisionHistoryLimit"] = limit
    listed = [revision(number, "a") for number in range(3)]
    sync = RevisionSync(context, ControllerHistory(context))
    reconcile = context.traces.reconcile("statefulset", "ns/web")
    await sync.truncate(convert(StatefulSet, body), listed, StatefulSetRevisions(listed[2], listed[2]), [], reconcile)
    assert fake_apiserver.written("DELETE") == []
