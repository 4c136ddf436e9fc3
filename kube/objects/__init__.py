"""API objects as msgspec Structs, and what is computed from their fields."""
