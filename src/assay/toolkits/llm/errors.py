"""What can go wrong with a call to a language model."""


class LLMError(RuntimeError):
    """A call that brought no usable reply; the message says what the server or model did."""


class RequestRefused(LLMError):
    """The server finds the request invalid (HTTP 400): an unknown option, or too long a prompt."""


class BudgetExceeded(LLMError):
    """The next call would go past a limit on cost or number of calls; it was not made."""


class ReplayMiss(LLMError, LookupError):
    """A recorded reply was asked for and there is none."""


class StructuredOutputError(LLMError):
    """The model's replies did not fit the schema, also after being told why."""
