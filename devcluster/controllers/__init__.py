"""Controllers of the development cluster: provisioning, expansion and modification of volumes."""
