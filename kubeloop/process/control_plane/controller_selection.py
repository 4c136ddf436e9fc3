"""Selection of controllers: built-in ones by name, and those of other authors by "module:Class" or entry point."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from kubeloop.kube.user_error import UserError
from kubeloop.process.control_plane.controller_table import CONTROLLER_TABLE, CONTROLLERS

if TYPE_CHECKING:
    from kubeloop.controllers.api.controller import ControllerFactory

ENTRY_POINT_GROUP = "kubeloop.controllers"


class ControllerSelection(msgspec.Struct, frozen=True):
    """Controllers to run. built_in: names from CONTROLLERS. custom: those of other authors."""

    built_in: frozenset[str]
    custom: tuple[ControllerFactory, ...] = ()

    @property
    def packages(self) -> set[str]:
        """Top-level packages of the custom controllers."""
        if not self.custom:
            return set()
        from kubeloop.controllers.api.runner import controller_class

        return {controller_class(factory).__module__.partition(".")[0] for factory in self.custom}


def select_controllers(
    entries: str | Iterable[str | ControllerFactory], option: str = "--controllers"
) -> ControllerSelection:
    """Return the controllers that the value of --controllers, or a sequence of its entries and of classes, selects.

    option: what the entries are values of, for errors.

    Entries are names of either form in the table, "*" for all built-in ones, "-name" to exclude one, "module:Class",
    and names of entry points. Raises UserError.
    """
    kubernetes_names = {descriptor.kubernetes_name: descriptor.name for descriptor in CONTROLLER_TABLE}
    enabled: set[str] = set()
    disabled: set[str] = set()
    custom: list[ControllerFactory] = []
    for entry in entries.split(",") if isinstance(entries, str) else entries:
        if not isinstance(entry, str):
            custom.append(_checked(entry))
            continue
        text = entry.strip()
        name = text.removeprefix("-")
        name = kubernetes_names.get(name, name)
        if text == "*":
            enabled |= set(CONTROLLERS)
        elif name in CONTROLLERS:
            (disabled if text.startswith("-") else enabled).add(name)
        elif text.startswith("-") or "*" in text:
            raise UserError(
                f"{option}: no controller named '{name}'",
                hint=f"there are {', '.join(CONTROLLERS)}, and '*' for all",
            )
        elif text:
            custom.append(_load(text, option))
    if not (enabled - disabled or custom):
        raise UserError(
            f"{option}: no controller is left to run",
            hint="for example deployment,replicaset,scheduler",
        )
    return ControllerSelection(frozenset(enabled - disabled), tuple(custom))


def _load(name: str, option: str) -> ControllerFactory:
    """Return an author's controller. Its module may be in the working directory. Raises UserError."""
    from kubeloop.kube.class_loading import load_object

    directory = os.getcwd()
    if ":" in name and directory not in sys.path:
        sys.path.append(directory)
    try:
        return _checked(load_object(name, ENTRY_POINT_GROUP, "controller", CONTROLLERS))
    except UserError as error:
        raise UserError(f"{option}: {error}", hint=error.hint) from None


def _checked(factory: ControllerFactory) -> ControllerFactory:
    """Return the factory of a controller whose declarations are complete. Raises UserError."""
    from kubeloop.controllers.api.runner import controller_class

    controller_class(factory)
    return factory
