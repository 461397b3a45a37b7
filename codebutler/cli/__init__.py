"""The commands of `codebutler`, by subject. What a command needs is imported when it runs."""

COMPLETION_VARIABLE = "_CODEBUTLER_COMPLETE"
"""Set where a shell asks what may stand for the last word typed: nothing is done then."""
