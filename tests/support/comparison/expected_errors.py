"""Server errors that kube-apiserver returns, too."""

from __future__ import annotations

import re

EXPECTED_ERRORS = re.compile(
    r"target\.(name|kind): |resourceVersion should not be set on objects to be created|"
    r"failed to create typed patch object|resourceVersion: Invalid value|doesn't match \$setElementOrder list|"
    r"does not contain declared merge key|failed to convert new object|strconv.ParseUint: parsing|unknown patch type|"
    r"expected a \[\]interface|list element types are not identical|unable to find api field|"
    r"value for key \d+ is not a map|no endpoints available for service"
)
"""Errors for which kube-apiserver v1.36.2 also responds with 500, and with 503 for services without endpoints."""
