"""The same kubectl commands against a real kube-apiserver and against ours: exit code, output and errors.

What is asked stands in tests/support/kubectl; how it is compared, in support.kubectl_beside.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from support.kubectl_beside import Difference, Side, Story, compare, declared
from support.real_apiserver import needs_binaries, real_apiserver
from support.serving import arguments, serving_plainly

pytestmark = pytest.mark.usefixtures("needs_kubectl")


@pytest.fixture(scope="module")
def compared(tmp_path_factory) -> Iterator[dict[str, list[Difference]]]:
    """Every story told to both servers, two at a time: its differences by what it is about."""
    needs_binaries()
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH")
    folder = tmp_path_factory.mktemp("kubectl")
    with real_apiserver(folder / "real") as kubernetes, serving_plainly(arguments(folder)):
        real = Side(folder / "one", kubernetes.kubeconfig)
        ours = Side(folder / "two", folder / "kubeconfig")
        yield {story.about: differences for story, differences in compare(real, ours, declared())}


@pytest.mark.parametrize("story", declared(), ids=lambda story: story.about)
def test_kubectl_cannot_tell_ours_from_a_real_one(compared: dict[str, list[Difference]], story: Story):
    told = "\n".join(line for each in compared[story.about] for line in each.lines())
    assert not told, f"{len(compared[story.about])} of {len(story.run)} commands:\n{told}"
