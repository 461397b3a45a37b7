"""The worker's commands. ``table.py`` finds their handlers; codebutler.domain.commands lists them."""
