"""What our own words do: one small file each. ``table.py`` names them; the words themselves are codebutler.words."""
