"""What the operating system provides: processes, files, locks, SQLite, HTTP."""
