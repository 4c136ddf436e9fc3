"""What is used of quotas: `controller` keeps it true, `monitors` watches what is counted, `counting` counts."""

from kubeloop.controllers.resourcequota.controller import ResourceQuotaController

__all__ = ["ResourceQuotaController"]
