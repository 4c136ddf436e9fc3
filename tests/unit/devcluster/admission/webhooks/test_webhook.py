"""One webhook: its identity and settings."""

from __future__ import annotations

from kubeloop.devcluster.admission.webhooks.webhook import Webhook


def test_webhook_has_the_settings_of_its_specification():
    spec = {"name": "a.b.c", "failurePolicy": "Ignore", "reinvocationPolicy": "IfNeeded", "rules": [{}]}
    webhook = Webhook("conf", 2, spec, "admit")
    assert (webhook.uid, webhook.ignores_failures, webhook.is_reinvoked) == ("conf/2", True, True)
    assert (webhook.match["resourceRules"], webhook.match["namespaceSelector"]) == ([{}], {})
    assert webhook.conditions is None


def test_match_conditions_are_compiled():
    spec = {"name": "a.b.c", "matchConditions": [{"name": "a", "expression": "true"}]}
    assert Webhook("conf", 0, spec, "validating").conditions is not None
