"""Controllers of the development cluster: volume provisioner."""
