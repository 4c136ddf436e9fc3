"""CEL values of JSON data with a schema."""

from __future__ import annotations

from kubeloop.cel.schema_values import SchemaView
from kubeloop.cel.values import Duration, Timestamp


def test_schema_converts_json_to_times_durations_and_doubles():
    view = SchemaView(
        {
            "type": "object",
            "properties": {
                "when": {"type": "string", "format": "date-time"},
                "for": {"type": "string", "format": "duration"},
                "ratio": {"type": "number"},
                "null": {"type": "string", "nullable": True},
            },
        }
    )
    value = view.convert({"when": "1970-01-01T01:00:00+01:00", "for": "1m", "ratio": 1, "null": None})
    assert value.find("when") == (Timestamp(0, 3600), True)
    assert value.find("__for__") == (Duration(60 * 10**9), True)
    ratio, _ = value.find("ratio")
    assert type(ratio) is float
    assert value.find("__null__") == (None, False)  # a field that is null counts as absent
