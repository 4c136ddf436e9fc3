"""Per-kind strategies: fields that the server sets or drops on create and update, and allocation for Services."""
