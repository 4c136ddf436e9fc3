"""The resource quota controller, which keeps the used amounts in the status of ResourceQuotas correct.

`resource_quota_controller` reconciles quotas, `quota_monitor` watches the counted kinds, `usage_calculation` sums up
their usage.
"""

from kubeloop.controllers.resourcequota.resource_quota_controller import ResourceQuotaController

__all__ = ["ResourceQuotaController"]
