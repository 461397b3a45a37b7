"""What can be looked at afterwards: logs, and the audit chain."""
