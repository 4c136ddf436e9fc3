"""Storage version migrator: rewrites all objects of a resource in its storage version."""
