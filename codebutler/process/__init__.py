"""What keeps a process in order: watched tasks, stop signals, readiness for systemd, kill points for tests."""
