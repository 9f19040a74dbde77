"""Plan where models go and why not, and drive an llmgw cluster.

Every operation is there twice: `x()` blocks, lets other threads run and ends at Ctrl-C; `x_async()` is awaited.
"""

import atexit

from llmgw._llmgw import (
    CheckCount,
    Client,
    Explanation,
    FetchProgress,
    Fit,
    Model,
    Node,
    NodeWarning,
    Os,
    Placement,
    Plan,
    Profile,
    Provision,
    Reason,
    Rejection,
    Replica,
    Report,
    Stop,
    Summary,
    Usage,
    _shutdown,
    plan,
    plan_async,
)
from llmgw.exceptions import (
    AccessError,
    ConfigError,
    ConflictError,
    ForkError,
    InternalError,
    LlmgwError,
    NotFoundError,
    OverloadedError,
    UnavailableError,
    UpstreamError,
    VerifyError,
)

__all__ = [
    "AccessError",
    "CheckCount",
    "Client",
    "ConfigError",
    "ConflictError",
    "Explanation",
    "FetchProgress",
    "Fit",
    "ForkError",
    "InternalError",
    "LlmgwError",
    "Model",
    "Node",
    "NodeWarning",
    "NotFoundError",
    "Os",
    "OverloadedError",
    "Placement",
    "Plan",
    "Profile",
    "Provision",
    "Reason",
    "Rejection",
    "Replica",
    "Report",
    "Stop",
    "Summary",
    "UnavailableError",
    "UpstreamError",
    "Usage",
    "VerifyError",
    "plan",
    "plan_async",
]

# The runtime's threads must be gone before the interpreter is: a thread that is inside Python while the
# interpreter is torn down crashes the process.
atexit.register(_shutdown)
