"""Reading of configuration files: documents that are no configuration, and kinds that others decode."""

from __future__ import annotations

import pytest

from kubeloop.kube.user_error import UserError
from kubeloop.scheduler.config.load import load_configuration, read_document

KIND = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        pytest.param("a: [", "is not YAML", "check its indentation", id="broken"),
        pytest.param("parallelism: 1\nparallelism: 2", "parallelism", "remove one of the two", id="repeated key"),
        pytest.param("- a", "is not a map", "it must start with apiVersion", id="a list"),
        pytest.param("", "is not a map", "it must start with apiVersion", id="empty"),
    ],
)
def test_text_that_is_no_document_is_a_user_error(text: str, problem: str, hint: str) -> None:
    with pytest.raises(UserError, match=problem) as raised:
        read_document(text)
    assert hint in str(raised.value.hint)


def test_json_is_read_as_yaml() -> None:
    assert read_document('{"a": [1, true]}') == {"a": [1, True]}
    assert load_configuration(str(KIND | {"parallelism": 7})).parallelism == 7
