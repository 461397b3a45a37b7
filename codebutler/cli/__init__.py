"""The commands of `codebutler`, by subject. A command's imports happen when it runs."""

COMPLETION_VARIABLE = "_CODEBUTLER_COMPLETE"
"""Set when a shell asks for completions of the last word: the command itself does nothing then."""
