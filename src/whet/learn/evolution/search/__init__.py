"""The search: who proposes, what is judged in which order, who may have children, and what is kept."""
