"""Conversion of objects between their stored form and a served API version.

Two built-in kinds are served in two versions and stored in one; their strategies convert. Custom resources convert by
schema or by webhook.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubeloop.devcluster.api.served_resources import ServedResource
from kubeloop.devcluster.api.strategy import Convert, strategy_of
from kubeloop.kube.json_object import JSON


def to_stored(target: ServedResource, obj: JSON) -> JSON:
    """Convert an object of the served version `target` to the stored version."""
    return obj if target.storage_resource is None else _converters(target)[0](obj)


def from_stored(target: ServedResource, obj: JSON) -> JSON:
    """Convert a stored object to the served version `target`; see also prepare_conversions()."""
    if target.crd_version is not None:
        return target.crd_version.from_storage(obj)
    return obj if target.storage_resource is None else _converters(target)[1](obj)


def _converters(target: ServedResource) -> tuple[Convert, Convert]:
    converters = strategy_of(target.resource).converters
    assert converters is not None, target.resource
    return converters


async def all_from_stored(target: ServedResource, objects: Sequence[JSON]) -> list[JSON]:
    """Convert stored objects to the served version `target`, with at most one call of a conversion webhook."""
    await prepare_conversions(target, objects)
    return [from_stored(target, obj) for obj in objects]


async def prepare_conversions(target: ServedResource, objects: Sequence[JSON]) -> None:
    """Call the conversion webhook of a custom resource, if there is one, so that from_stored() need not wait.

    Raises StatusError 500 if the webhook fails.
    """
    if target.crd_version is not None:
        await target.crd_version.prepare_conversions(objects)
