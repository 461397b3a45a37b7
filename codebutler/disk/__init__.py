"""What both processes need of files: locks, one-writer SQLite, daily backups."""
