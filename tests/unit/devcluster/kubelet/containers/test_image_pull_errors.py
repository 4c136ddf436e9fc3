"""Why a container has no image."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.kubelet.containers.image_pull_errors import image_problem, is_missing


def test_invalid_image_has_events_of_the_kubelet():
    problem = image_problem("App", "", "", ())
    assert problem is not None
    message = (
        'Failed to apply default image tag "App": couldn\'t parse image name "App": invalid reference format: '
        "repository name (library/App) must be lowercase"
    )
    assert (problem.reason, problem.message) == ("InvalidImageName", message)
    assert problem.events == (
        ("Warning", "InspectFailed", message),
        ("Warning", "Failed", "Error: InvalidImageName"),
    )


def test_missing_image_cannot_be_pulled():
    assert image_problem("app:1", "Always", "", ("other*",)) is None
    problem = image_problem("app:1", "Always", "", ("app:*",))
    assert problem is not None
    assert problem.reason == "ErrImagePull"
    assert problem.message.startswith("rpc error: code = NotFound desc = failed to pull and unpack image ")
    assert [event[1] for event in problem.events] == ["Pulling", "Failed", "Failed"]
    assert problem.events[1][2] == f'Failed to pull image "app:1": {problem.message}'


def test_missing_image_that_is_never_pulled():
    problem = image_problem("app:1", "Never", "", ("app:*",))
    assert problem is not None
    message = 'Container image "app:1" is not present with pull policy of Never'
    assert (problem.reason, problem.message) == ("ErrImageNeverPull", message)
    assert problem.events[1] == ("Warning", "Failed", "Error: ErrImageNeverPull")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("app:1", True), ("app", False), ("app*", True), ("docker.io/*", True), ("a??:1", True), ("App*", False)],
)
def test_pattern_matches_the_written_or_complete_image(pattern: str, *, expected: bool):
    assert is_missing("app:1", (pattern,)) is expected
