"""Claims that request more storage than they have, and the resizer of their volume. Pure functions."""

from __future__ import annotations

from kubeloop.kube.objects.storage_types import PersistentVolume, PersistentVolumeClaim
from kubeloop.kube.values.quantities import Quantity, parse_quantity

_PRE_RESIZE_CAPACITY = "volume.alpha.kubernetes.io/pre-resize-capacity"


def is_growing(claim: PersistentVolumeClaim) -> bool:
    """Return True if a bound claim requests more storage than its status has."""
    requested = parse_quantity(claim.spec.resources.requests.get("storage", 0))
    return claim.status.phase == "Bound" and requested.compare(_capacity(claim)) > 0


def is_event_for_expander(old: PersistentVolumeClaim | None, new: PersistentVolumeClaim) -> bool:
    """Return True if a bound claim is new, or its request or its capacity has grown."""
    if new.status.phase != "Bound":
        return False
    if old is None:
        return True
    requested, before = (parse_quantity(claim.spec.resources.requests.get("storage", 0)) for claim in (new, old))
    return requested.compare(before) > 0 or _capacity(new).compare(_capacity(old)) > 0


def needs_resizer(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    """Return True if an external resizer has to work on the volume of a claim."""
    return is_growing(claim) or _PRE_RESIZE_CAPACITY in volume.metadata.annotations


def _capacity(claim: PersistentVolumeClaim) -> Quantity:
    return parse_quantity(claim.status.capacity.get("storage", 0))
