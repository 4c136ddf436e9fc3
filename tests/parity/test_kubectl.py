"""The same kubectl commands on kube-apiserver and on the development API server: exit code, output and errors.

The commands are in tests/support/kubectl; support.comparison.kubectl_comparison documents the comparison.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from support.apiserver.apiserver_process import bare_apiserver_command, running_apiserver_sync
from support.comparison.kubectl_comparison import Difference, KubectlServer, Scenario, compare, read_scenarios
from support.comparison.real_apiserver import needs_binaries, real_apiserver

pytestmark = [pytest.mark.usefixtures("needs_kubectl"), pytest.mark.timeout(1800)]  # `differences` runs all scenarios


@pytest.fixture(scope="module")
def differences(tmp_path_factory) -> Iterator[dict[str, list[Difference]]]:
    """Run all scenarios on both servers, two at a time, and return their differences by name."""
    needs_binaries()
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH")
    folder = tmp_path_factory.mktemp("kubectl")
    with real_apiserver(folder / "real") as kubernetes, running_apiserver_sync(bare_apiserver_command(folder)):
        real = KubectlServer(folder / "one", kubernetes.kubeconfig)
        ours = KubectlServer(folder / "two", folder / "kubeconfig")
        yield {scenario.about: different for scenario, different in compare(real, ours, read_scenarios())}


@pytest.mark.parametrize("scenario", read_scenarios(), ids=lambda scenario: scenario.about)
def test_kubectl_output_matches_kube_apiserver(differences: dict[str, list[Difference]], scenario: Scenario):
    different = differences[scenario.about]
    report = "\n".join(line for difference in different for line in difference.lines())
    assert not report, f"{len(different)} of {len(scenario.run)} commands:\n{report}"
