"""Logs, and the audit log with its chain of hashes."""
