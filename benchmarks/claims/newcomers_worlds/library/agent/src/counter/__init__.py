"""The lending desk of a city library."""
