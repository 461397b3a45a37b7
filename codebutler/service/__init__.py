"""CodeButler as a service of its user's session: systemd on Linux, launchd on macOS."""
