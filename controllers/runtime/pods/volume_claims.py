"""PersistentVolumeClaims that a Pod uses. Pure functions.

Source: component-helpers storage/ephemeral, pkg/controller/volume/common.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kubeloop.kube.objects.api_types import JSONValue, Pod

CLAIM_INDEX = "volume-claim"
"""Index of Pods by the keys of the claims that they use."""


def claims_of_pod(pod: Pod) -> Iterator[tuple[str, JSONValue]]:
    """Yield the keys of the claims that a Pod uses, each with its ephemeral volume source, or None."""
    metadata = pod.metadata
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            yield f"{metadata.namespace}/{volume.persistent_volume_claim.claim_name}", None
        elif volume.ephemeral is not None:
            yield f"{metadata.namespace}/{metadata.name}-{volume.name}", volume.ephemeral


def by_claim(pod: object) -> Iterable[str]:
    """Index function of CLAIM_INDEX."""
    assert isinstance(pod, Pod)
    return [key for key, _ in claims_of_pod(pod)] if pod.spec.volumes else ()
