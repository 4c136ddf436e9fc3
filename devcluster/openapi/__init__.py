"""OpenAPI v2 and v3 documents, field descriptions and discovery."""
