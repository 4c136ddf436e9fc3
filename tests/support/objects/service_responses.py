"""Service ports for requests, and the errors of their responses."""

from __future__ import annotations

from typing import Any

JSON = dict[str, Any]
SERVICES_PATH = "/api/v1/namespaces/default/services"


def port(number: int = 1, **fields: Any) -> JSON:
    """Return a named service port, with `fields`."""
    return {"name": f"p{number}", "port": number, **fields}


def causes_or_message(response: tuple[int, JSON]) -> list[str]:
    """Return the causes of a 422, or the message of another error, as the only entry."""
    status, content = response
    causes = (content.get("details") or {}).get("causes", ()) if status >= 400 else ()
    texts = [f"{cause['field']}: {cause['message']}" for cause in causes if "field" in cause]
    return texts or ([content["message"]] if status >= 400 else [])
