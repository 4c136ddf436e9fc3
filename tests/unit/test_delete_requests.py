"""Controllers and the scheduler delete one object by its UID: a newer object of the same name is kept.

Such a request is also repeated after a lost response, which is not safe for a name alone.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# In a terminating namespace nothing can be created, and its content is deleted whatever its UID. The client of
# controllers.api takes an object, and its UID as the precondition.
NOT_CHECKED = frozenset({"controllers/namespace/namespaced_resources_deleter.py", "controllers/api/controller.py"})
FILES = sorted(
    name
    for folder in ("controllers", "scheduler")
    for file in (ROOT / folder).rglob("*.py")
    if ".delete(" in file.read_text() and (name := file.relative_to(ROOT).as_posix()) not in NOT_CHECKED
)


def unpinned_deletions(source: str) -> list[int]:
    """Return the lines of `client.delete` without a UID."""
    return [
        call.lineno
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "delete"
        and ast.unparse(call.func.value).endswith("client")
        and len(call.args) > 1  # the client of controllers.api has one argument, the object, and sends its UID
        and "precondition_uid" not in {keyword.arg for keyword in call.keywords}
    ]


def test_unpinned_deletion_is_detected() -> None:
    assert unpinned_deletions(
        "a.client.delete(PODS, 'p')\nself._client.delete(\n PODS, 'p', precondition_uid='u')"
    ) == [1]


@pytest.mark.parametrize("file", FILES)
def test_deletions_have_a_uid(file: str) -> None:
    assert unpinned_deletions((ROOT / file).read_text()) == []
