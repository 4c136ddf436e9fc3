"""Annotations of kubeloop on a pod."""

from __future__ import annotations

import pytest

from kubeloop.devcluster.kubelet.pods.pod_annotations import (
    exit_code_of,
    invalid_markers,
    marker,
    markers,
    number_of,
)


def test_marker_prefers_annotation_to_label():
    labels = {"kubeloop.dev/stages": "false", "app": "web"}
    labelled = {"labels": labels}
    annotated = {"labels": labels, "annotations": {"kubeloop.dev/stages": "true", "kubeloop.dev/crashes": "1"}}
    assert marker({"metadata": labelled}, "stages") == "false"
    assert marker({"metadata": annotated}, "stages") == "true"
    assert marker({"metadata": {}}, "stages") is None
    assert markers(labelled) == {"stages": "false"}
    assert markers(annotated) == {"stages": "true", "crashes": "1"}
    assert markers({}) == {}


def test_invalid_markers_are_named_with_their_effect():
    values = {"exit-code.worker": "1", "stop-seconds.web": "1", "exit-code.web": "-1", "jitter": "-1", "not-ready": ""}
    assert list(invalid_markers(values, {"web"})) == [
        "kubeloop.dev/exit-code.worker: the pod has no such container; it is ignored",
        "kubeloop.dev/stop-seconds.web: the pod has no such container; it is ignored",
        "kubeloop.dev/exit-code.web: '-1' is not a number from 0 to 255; 1 is used",
        "kubeloop.dev/jitter: '-1' is not a number of 0 or more; it is ignored",
    ]


@pytest.mark.parametrize(
    ("text", "number"), [("1.5", 1.5), ("0", 0), ("-1", None), ("inf", None), ("soon", None), (None, None)]
)
def test_number_of_annotation(text, number):
    assert number_of(text) == number


@pytest.mark.parametrize(("text", "code"), [("0", 0), ("255", 255), ("256", None), ("-1", None), ("x", None)])
def test_exit_code_of_annotation(text, code):
    assert exit_code_of(text) == code
