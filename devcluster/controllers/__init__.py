"""Controllers of the development cluster: node lifecycle, volume provisioner."""
