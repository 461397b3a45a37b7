"""What the operating system gives: processes, files, locks, SQLite, HTTP."""
