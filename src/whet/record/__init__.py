"""The record: the store, traces and how they are read, environments and rollouts, import and export."""
