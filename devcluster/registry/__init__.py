"""Steps of a write that all kinds share: fields that the server sets, restores or drops."""
