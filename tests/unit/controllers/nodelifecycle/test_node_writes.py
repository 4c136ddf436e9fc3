"""Patches of Nodes after conflicts, and failures of the work on one node."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.controllers.nodelifecycle.node_writes import guarded, patch_node
from kubeloop.kube.errors import Conflict, NotFound, ServerUnreachable
from kubeloop.kube.objects.api_types import ApiStatus, Node, ObjectMeta


def node(version: str, uid: str = "1") -> Node:
    return Node(metadata=ObjectMeta(name="a", uid=uid, resource_version=version))


class Client:
    """Rejects the first patches as conflicts; `current` is the node of the API server."""

    def __init__(self, conflicts: int, current: Node) -> None:
        self.conflicts, self.current = conflicts, current
        self.patches: list[Any] = []

    async def patch(self, _resource: Any, _name: str, patch: Any, _type: Any, *, subresource: str) -> Node:
        self.patches.append(patch)
        if len(self.patches) <= self.conflicts:
            raise Conflict(ApiStatus(code=409, reason="Conflict", message="changed"))
        return node("written")

    async def get(self, _resource: Any, _name: str) -> Node:
        return self.current


@pytest.mark.parametrize(
    ("conflicts", "current", "patches", "result"),
    [
        pytest.param(0, node("2"), ["1"], "written", id="no conflict"),
        pytest.param(1, node("2"), ["1", "2"], "written", id="planned again"),
        pytest.param(4, node("2"), ["1", "2", "2", "2", "2"], "written", id="last try"),
        pytest.param(1, node("done"), ["1"], "done", id="nothing to write any more"),
        pytest.param(1, node("2", uid="2"), ["1"], "2", id="another node of this name"),
    ],
)
async def test_patch_is_planned_again_after_a_conflict(conflicts, current, patches, result):
    client: Any = Client(conflicts, current)
    version = await patch_node(
        client, node("1"), lambda it: None if it.metadata.resource_version == "done" else it.metadata.resource_version
    )
    assert client.patches == patches
    assert version.metadata.resource_version == result


async def test_last_conflict_of_a_patch_is_raised():
    client: Any = Client(5, node("2"))
    with pytest.raises(Conflict):
        await patch_node(client, node("1"), lambda _node: {})
    assert len(client.patches) == 5


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        pytest.param(NotFound(ApiStatus(code=404, message="gone")), "", id="deleted"),
        pytest.param(ServerUnreachable("refused", maybe_applied=False), "could not update node a", id="unreachable"),
        pytest.param(ValueError("broken"), "could not check node a", id="unexpected"),
    ],
)
async def test_failure_of_work_on_one_node_is_logged(failure, message, caplog):
    async def work() -> None:
        raise failure

    await guarded(node("1"), work())
    assert message in caplog.text
    assert bool(caplog.text) is bool(message)
