"""Proof that a candidate is better: the gate, its guardrails, and verdicts on two files of results."""
