"""What `whet train` needs of methods that are put together from others; imported with torch, when asked for."""
