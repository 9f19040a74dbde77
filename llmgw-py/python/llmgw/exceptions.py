"""What can go wrong, as a small tree: catch the base, or the leaf that you can do something about."""

from __future__ import annotations

__all__ = [
    "AccessError",
    "ConfigError",
    "ConflictError",
    "ForkError",
    "InternalError",
    "LlmgwError",
    "NotFoundError",
    "OverloadedError",
    "UnavailableError",
    "UpstreamError",
    "VerifyError",
]


class LlmgwError(Exception):
    """The base of all errors of this package.

    `str()` says what happened to what, with its causes, and what would help.
    """

    message: str
    """What happened, to what, with all causes."""
    code: str
    """The stable name of the failure, such as `not_found`; the same as in the HTTP APIs."""
    retryable: bool
    """Whether the same call may succeed later."""
    hint: str | None
    """What would help, where that can be said."""

    def __init__(
        self,
        message: str,
        code: str = "internal",
        retryable: bool = False,
        hint: str | None = None,
    ) -> None:
        # All four are kept as `args`, so that the error survives pickling.
        super().__init__(message, code, retryable, hint)
        self.message = message
        self.code = code
        self.retryable = retryable
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"


class ConfigError(LlmgwError, ValueError):
    """Data that can't be right; the message names the field."""


class AccessError(LlmgwError):
    """No token or key, or one that does not allow this."""


class NotFoundError(LlmgwError, LookupError):
    """No such model or object."""


class ConflictError(LlmgwError):
    """The object exists already, or its state does not allow the change."""


class OverloadedError(LlmgwError):
    """A bounded queue is full."""


class UnavailableError(LlmgwError):
    """What is needed can't be reached or does not serve now."""


class UpstreamError(LlmgwError):
    """The other side failed, or its answer was not understood."""


class VerifyError(LlmgwError):
    """Bytes are not what they should be."""


class ForkError(LlmgwError, RuntimeError):
    """The package was used before this process was forked."""


class InternalError(LlmgwError, RuntimeError):
    """A mistake of this package."""
