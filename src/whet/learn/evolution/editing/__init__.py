"""Programs and texts that evolve, and the edits of them that need no model."""
