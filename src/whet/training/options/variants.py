"""The named variants of credit and loss among which a method's options choose."""

from __future__ import annotations

from typing import Literal

Baseline = Literal["group", "leave_one_out", "none"]
Scale = Literal["none", "group"]
Assignment = Literal["broadcast", "to_go", "agent", "decomposition"]
Aggregation = Literal["grpo", "bnpo", "dr_grpo", "dapo"]
Ratio = Literal["token", "sequence", "trajectory"]
