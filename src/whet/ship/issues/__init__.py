"""The issues of an agent: found in the record by statistics, put down to a part, and followed until they are closed.

`find_issues(store)` looks at the newest runs, records what it sees and moves what has changed by itself: a shipped or
closed issue that fails again is reopened.  `store.issues` reads them and moves them.
"""

from ...record.store.issues import AgentIssue, Component, IssueMove, IssueStatus
from .finding import find_issues, standing

__all__ = ["AgentIssue", "Component", "IssueMove", "IssueStatus", "find_issues", "standing"]
