"""Trajectories and tasks in files, in whet's own form and in those of other programs."""
