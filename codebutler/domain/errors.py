"""One error tree. A class's docstring is its default text; what a user sees is one line that says what to do.

A failed agent run is not an error: it is a result (``Finished(ok=False)``).
"""

from __future__ import annotations

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_IOERR = 74
EXIT_CONFIGURATION = 78


class CodeButlerError(Exception):
    """Something went wrong."""

    exit_code = EXIT_FAILED

    def __init__(self, message: str = "") -> None:
        super().__init__(message or (self.__doc__ or "").strip())


class ConfigError(CodeButlerError):
    """The configuration cannot be used."""

    exit_code = EXIT_CONFIGURATION


class LegacyConfigError(ConfigError):
    """This configuration is from the WhatsApp era: run `codebutler migrate`."""


class RegistryError(CodeButlerError):
    """The registry of repositories does not allow that."""


class LockHeldError(CodeButlerError):
    """Another supervisor runs on this home."""

    def __init__(self, message: str = "", holder_pid: int | None = None) -> None:
        super().__init__(message)
        self.holder_pid = holder_pid


class NotRunningError(CodeButlerError):
    """No supervisor runs on this home: start one with `codebutler supervise`."""


class ProtocolError(CodeButlerError):
    """The other side of the pipe broke the protocol; the pipe is closed."""


class FrameTooLargeError(ProtocolError):
    """A frame exceeds the limit."""


class StoreError(CodeButlerError):
    """The store cannot be used."""


class StoreFullError(StoreError):
    """The disk is full: what could not be written can be once there is room."""


class StoreDamagedError(StoreError):
    """The store is lost or damaged, and nothing may be put in its place but a backup."""


class StoreTooNewError(StoreError):
    """The store was written by a newer CodeButler: update this one."""

    exit_code = EXIT_CONFIGURATION


class SandboxUnavailableError(CodeButlerError):
    """No sandbox works here, and nothing runs outside one."""

    exit_code = EXIT_CONFIGURATION


class AgentUnavailableError(CodeButlerError):
    """The agent's program is missing or too old."""


class ChatError(CodeButlerError):
    """The chat service refused the call; ``code`` is its own word for why."""

    def __init__(self, message: str = "", code: str = "") -> None:
        super().__init__(message or code)
        self.code = code


class ChatAuthError(ChatError):
    """The chat service no longer accepts the token: issue a new one and run `codebutler setup`."""

    exit_code = EXIT_CONFIGURATION


class ChatRateLimitedError(ChatError):
    """The chat service asks us to wait."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"rate limited, retry after {retry_after_s:g} s", "ratelimited")
        self.retry_after_s = retry_after_s


class ChatOutcomeUnknownError(ChatError):
    """The call may or may not have taken effect: look before doing it again."""


class ChatUnreachableError(ChatError):
    """The chat service cannot be reached; nothing was sent."""
