"""One small client for language models: remote or embedded, recorded, budgeted, structured.

from assay.toolkits.llm import Client, RemoteBackend, ReplyCache

llm = Client(RemoteBackend("gpt-4o-mini"), cache=ReplyCache("replies.sqlite", "record"))
llm.complete([{"role": "user", "content": "Name a protocol."}]).text
"""

from assay.toolkits.llm.batch import complete_all
from assay.toolkits.llm.budget import Budget
from assay.toolkits.llm.cache import CacheMode, ReplyCache
from assay.toolkits.llm.client import Client
from assay.toolkits.llm.errors import (
    BudgetExceeded,
    LLMError,
    ReplayMiss,
    RequestRefused,
    StructuredOutputError,
)
from assay.toolkits.llm.prices import PriceTable
from assay.toolkits.llm.protocol import LLM, Backend, Completion, Message, Reply, Request, Usage
from assay.toolkits.llm.remote import RemoteBackend

__all__ = [
    "LLM",
    "Backend",
    "Budget",
    "BudgetExceeded",
    "CacheMode",
    "Client",
    "Completion",
    "LLMError",
    "Message",
    "PriceTable",
    "RemoteBackend",
    "ReplayMiss",
    "Reply",
    "ReplyCache",
    "Request",
    "RequestRefused",
    "StructuredOutputError",
    "Usage",
    "complete_all",
]
