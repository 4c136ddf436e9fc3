"""Type of a decoded JSON object, for example a Kubernetes object as it is sent and stored."""

from __future__ import annotations

from typing import Any

JSON = dict[str, Any]
