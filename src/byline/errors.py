"""Every error that Byline raises on purpose.

An error's class docstring is its default message; an error that knows more says more. All of
them are `BylineError`s, so that a host can tell a request that Byline refused from a defect.
"""

from typing import ClassVar


class BylineError(Exception):
    """Byline refused a request."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or " ".join((type(self).__doc__ or "").split()))


class ConfigurationError(BylineError, ValueError):
    """Something was configured in a way that cannot work. Found at construction, before anything ran."""


class InvalidIdentifier(BylineError, ValueError):
    """An id, a record or a cursor is malformed."""


class UnknownAgent(BylineError):
    """No agent of that name is loaded in this process."""


class UnknownRun(BylineError):
    """There is no such run."""


class UnknownCall(BylineError):
    """The decision names a call that does not wait for one. Nothing was executed."""


class ToolNotLoaded(BylineError):
    """This process lacks the agent or a tool of the call: it can deny and cancel, but not approve."""


class InvalidArguments(BylineError, ValueError):
    """The arguments of a call do not fit the tool's schema."""


class ToolError(BylineError):
    """Raised by a tool: it wrote nothing, and the model may try again.

    The message is shown to the model; it must not confirm what the acting person may not know.
    """


class ToolContractBroken(BylineError):
    """A tool broke its contract, for instance by returning something that is no ToolResult."""


class ModelError(BylineError):
    """The model could not answer.

    Attributes:
        retryable: whether the same request may succeed later.
        retry_after: seconds after which the provider wants to be asked again, if it said so.
        detail: the provider's own words, which may hold content: for a sealed detail, for no log. Not in `str`, not in
            `repr` (P23).
    """

    retryable: ClassVar[bool] = False

    def __init__(
        self, message: str | None = None, *, retry_after: float | None = None, detail: str | None = None
    ) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip().partition("\n")[0])
        self.retry_after = retry_after
        self.detail = detail


class ModelUnreachable(ModelError):
    """The provider could not be reached, broke the connection, or did not answer in time."""

    retryable: ClassVar[bool] = True


class ModelRateLimited(ModelError):
    """The provider says that it was asked too often."""

    retryable: ClassVar[bool] = True


class ModelUnavailable(ModelError):
    """The provider failed: an error of its server, an overload, or a reply that is no answer."""

    retryable: ClassVar[bool] = True


class ModelAccessDenied(ModelError):
    """The provider refuses the key, or what the key may use."""


class ModelRefused(ModelError):
    """The model refused to answer, or a content filter stopped the question or the answer."""


class ContextTooLong(ModelError):
    """The transcript is longer than the model can read."""


class NativeUnreadable(ModelError):
    """An earlier answer is stored in a form that this version of the model's adapter cannot read. The run waits."""


class NotAllowed(BylineError):
    """The actor may not do this. Nothing was executed; the run can still be decided."""


class NotDecidable(BylineError):
    """The run does not wait for this decision."""


class AlreadyDecided(NotDecidable):
    """It has been decided already. Nothing more was executed."""


class StaleDecision(NotDecidable):
    """The decision carries no digest or an old one: the turn changed since it was read. Read it again."""


class ApprovalExpired(NotDecidable):
    """The approval has expired."""


class RunFinished(NotDecidable):
    """The run has already ended."""


class DecidedAndFinished(AlreadyDecided, RunFinished):
    """Somebody else decided first, and the run has ended since. Nothing more was executed."""


class NotRetryable(BylineError):
    """Only a run in dead letter can be retried."""


class DedupeConflict(BylineError):
    """The dedupe key belongs to a run of another agent or actor."""


class RuntimeClosed(BylineError):
    """The runtime is not open: enter it with `async with runtime:` or `with runtime.sync:`."""


class StoreError(BylineError):
    """The store cannot be used."""


class StoreUnavailable(StoreError):
    """The store did not answer. Whether its last transaction committed is unknown."""


class SchemaMismatch(StoreError):
    """The store's schema is of another revision than this version of Byline."""


class KeyMissing(StoreError):
    """A sealed value needs a key that this process does not have. The run stays."""


class UnknownKey(StoreError):
    """There is no key of that id."""


class KeyInUse(StoreError):
    """The key cannot be dropped, or activated: it is active, a value needs it, or it is closed."""


class SealBroken(StoreError):
    """A sealed value does not belong where it stands, or was changed."""


class ClaimLost(StoreError):
    """Another segment executes this run now; this one stops before its next effect."""


class CancelRequested(StoreError):
    """The run is to be cancelled: the fence was not set and nothing was executed."""
