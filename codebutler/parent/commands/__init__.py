"""What the commands of the parent do; which there are stands in codebutler.domain.commands."""
