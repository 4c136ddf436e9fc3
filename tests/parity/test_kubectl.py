"""The same kubectl commands against a real kube-apiserver and against ours: exit code, output and errors.

What is asked stands in tests/support/kubectl; how it is compared, in support.kubectl_comparison.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from support.apiserver_process import apiserver_command, running_apiserver_sync
from support.kubectl_comparison import Difference, KubectlServer, Scenario, compare, read_scenarios
from support.real_apiserver import needs_binaries, real_apiserver

pytestmark = pytest.mark.usefixtures("needs_kubectl")


@pytest.fixture(scope="module")
def compared(tmp_path_factory) -> Iterator[dict[str, list[Difference]]]:
    """Every story told to both servers, two at a time: its differences by what it is about."""
    needs_binaries()
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH")
    folder = tmp_path_factory.mktemp("kubectl")
    with real_apiserver(folder / "real") as kubernetes, running_apiserver_sync(apiserver_command(folder)):
        real = KubectlServer(folder / "one", kubernetes.kubeconfig)
        ours = KubectlServer(folder / "two", folder / "kubeconfig")
        yield {story.about: differences for story, differences in compare(real, ours, read_scenarios())}


@pytest.mark.parametrize("story", read_scenarios(), ids=lambda story: story.about)
def test_kubectl_cannot_tell_ours_from_a_real_one(compared: dict[str, list[Difference]], story: Scenario):
    told = "\n".join(line for each in compared[story.about] for line in each.lines())
    assert not told, f"{len(compared[story.about])} of {len(story.run)} commands:\n{told}"
