"""Interface of a version of a CustomResourceDefinition, in addition to the strategy of its kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Protocol

from kubeloop.devcluster.api.errors import StatusError
from kubeloop.devcluster.api.slow_work import SlowWorkContext
from kubeloop.devcluster.api.value_types import ValueType
from kubeloop.kube.json_object import JSON


class CustomScale(Protocol):
    """The subresource scale; see apiextensions.custom_scale.PathScale."""

    replicas_paths: Mapping[str, tuple[str, ...] | None]

    def read(self, obj: JSON, *, strict: bool = False) -> JSON: ...
    def read_for_update(self, obj: JSON) -> JSON: ...
    def apply(self, obj: JSON, scale: JSON) -> JSON: ...


class CustomResourceVersion(Protocol):
    """Forms and conversion of the objects of one version; see apiextensions.served_version.ServedVersion."""

    value_type: ValueType
    """Type of whole objects."""

    @property
    def api_versions(self) -> Set[str]:
        """All versions of the definition."""

    @property
    def scale(self) -> CustomScale: ...
    @property
    def is_storage_version(self) -> bool: ...
    @property
    def uses_webhook(self) -> bool: ...

    is_watched: bool

    def decode(self, raw: JSON) -> tuple[JSON, list[str]]: ...
    def normalize_applied(self, obj: JSON) -> JSON: ...
    def pruned(self, obj: JSON) -> JSON: ...
    def wrong_kind(self, obj: JSON) -> StatusError: ...

    def to_storage(self, obj: JSON) -> JSON: ...
    def from_storage(self, obj: JSON) -> JSON: ...
    async def prepare_write(self, context: SlowWorkContext, obj: JSON) -> None: ...
    async def prepare_conversions(self, objects: Sequence[JSON]) -> None: ...

    def check_readable(self, method: str, namespace: str, name: str, *, in_pages: bool) -> None: ...
    def check_create(self, name: str) -> None: ...
    async def check_rules(
        self, context: SlowWorkContext, obj: JSON, old: JSON | None, causes: list[JSON]
    ) -> tuple[Sequence[JSON], Sequence[str]]: ...
