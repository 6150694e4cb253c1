"""Learning: the Experiment and its loop, one file per method, and the machinery that methods share."""
