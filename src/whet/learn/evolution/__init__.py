"""The common parts of the evolution of readable resources: targets in source, operators, archive, outcomes."""
