"""`codebutler doctor`: whether everything is there that a supervisor and its agents need, and what to do if not."""
