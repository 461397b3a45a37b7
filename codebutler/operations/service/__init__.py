"""CodeButler as a user service, systemd on Linux, launchd on macOS; and where such a service looks for programs."""
