"""Three modules of four switches each."""

# EVOLVE-BLOCK-START
FIRST = [False, False, False, False]
SECOND = [False, False, False, False]
THIRD = [False, False, False, False]
# EVOLVE-BLOCK-END
