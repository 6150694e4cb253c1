"""What evolution of readable resources shares: targets in source, operators, archive, outcomes."""
