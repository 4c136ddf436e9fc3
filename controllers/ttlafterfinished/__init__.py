"""TTL-after-finished controller: deletes Jobs when ttlSecondsAfterFinished has passed since their end."""
