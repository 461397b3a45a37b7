"""The repository's store: tables, rows, transactions."""
