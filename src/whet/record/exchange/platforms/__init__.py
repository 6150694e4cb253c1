"""What other products recorded of an agent, as trajectories, scores, feedback and tasks of ours.

A product's module reads one record of it at a time (`read`) into a `Holdings`, and names the pages of its public API
(`streams`).  Spans become trajectories by the dialects of `record.tracing`, as if they had been sent here.
"""
