"""Load classes of other distributions: installed under an entry point, or named as "module:Class"."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Iterable
from typing import Any

from kubeloop.kube.user_error import UserError, closest_names


def load_object(name: str, group: str, noun: str, known: Iterable[str]) -> Any:
    """Return the object of an entry point of this group, or of "module:Class".

    noun: what is loaded, in errors. Raises UserError if there is none; the hint suggests one of `known` with a similar
    name.
    """
    if ":" in name:
        return _from_path(name, name, noun)
    from importlib.metadata import entry_points

    installed = entry_points(group=group)
    for entry_point in installed:
        if entry_point.name == name:
            return _from_path(name, entry_point.value, noun)
    raise UserError(
        f"no {noun} named {name!r}",
        hint=suggestion(name, [*known, *(entry_point.name for entry_point in installed)])
        or f"install one that declares the entry point group {group!r}, or name it 'module:Class'",
    )


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return "did you mean ...?" with the name that is most like `name`; "" if none is."""
    lower = {candidate.lower(): candidate for candidate in known}
    similar = closest_names(name.lower(), lower)
    return f"did you mean {lower[similar[0]]!r}?" if similar else ""


def _from_path(name: str, path: str, noun: str) -> Any:
    module_name, _, attribute = path.partition(":")
    if not module_name or module_name.startswith("."):
        raise UserError(f"the {noun} {name!r} has no module", hint="name it 'module:Class'")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # the module may raise anything
        raise _import_error(f"cannot load the {noun} {name!r}: ", module_name, error) from error
    loaded = getattr(module, attribute, None)
    if loaded is None:
        classes = [key for key, value in vars(module).items() if isinstance(value, type)]
        raise UserError(
            f"cannot load the {noun} {name!r}: module {module_name!r} has no {attribute!r}",
            hint=suggestion(attribute, classes) or "use 'module:Class' as its name",
        )
    return loaded


def _import_error(problem: str, module_name: str, error: BaseException) -> UserError:
    """Return what is wrong with the module, and where."""
    if isinstance(error, SyntaxError):  # its text names file and line
        return UserError(f"{problem}{type(error).__name__}: {error}", hint="correct the file")
    if isinstance(error, ModuleNotFoundError) and error.name and f"{module_name}.".startswith(f"{error.name}."):
        return UserError(f"{problem}{error}", hint="check the name of the module, and that it is on PYTHONPATH")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if len(frames) > 1 else ""
    if isinstance(error, ImportError):
        return UserError(f"{problem}{error}{place}", hint="install what the module imports, or correct the import")
    return UserError(f"{problem}{type(error).__name__}: {error}{place}", hint="correct the module")
