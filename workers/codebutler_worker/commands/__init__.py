"""What our own commands do. ``table.py`` finds their handlers; which there are stands in codebutler.domain.commands."""
