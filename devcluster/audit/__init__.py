"""Audit log: the policy of --audit-policy-file, and events in the format of audit.k8s.io/v1.

Without a policy there is no Auditor, and requests have no AuditRecord. Sources: apiserver pkg/audit,
pkg/endpoints/filters/{audit,authn_audit}.go, plugin/pkg/audit/log of v1.36.
"""
