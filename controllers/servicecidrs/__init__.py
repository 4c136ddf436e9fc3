"""ServiceCIDR controller: readiness of address ranges of Services, and their deletion."""
