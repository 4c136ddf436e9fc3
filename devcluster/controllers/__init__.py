"""Controllers of the development cluster: node lifecycle, volumes."""
