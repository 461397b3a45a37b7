"""The parent's commands; codebutler.domain.commands lists them."""
