"""A support desk's first line: which team gets a message, and must somebody look at once?"""
