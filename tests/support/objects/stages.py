"""Texts of KWOK stages."""

from __future__ import annotations

SELECT_ALL = "  selector: {}\n"
DELETE = "  next: {delete: true}\n"


def stage_text(name: str = "one", *, kind: str = "Pod", spec: str = "", metadata: str = "") -> str:
    """Return a stage for a kind of v1. spec, metadata: further fields, indented by two spaces."""
    return f"""
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata:
  name: {name}
{metadata}
spec:
  resourceRef: {{apiGroup: v1, kind: {kind}}}
{spec}
"""
