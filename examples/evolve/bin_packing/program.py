"""Online bin packing: which bin does the next item go into?"""


# EVOLVE-BLOCK-START
def priority(item, space):
    """How much we want `item` in a bin that has `space` left: the highest wins. Start: best fit."""
    left = space - item
    return 0 - left


# EVOLVE-BLOCK-END
