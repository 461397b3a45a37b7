"""The commands of `codebutler`, one file each. What a command needs is imported when it runs."""
