"""Methods of `whet train` that are composed of others; imported with torch, on use."""
