"""Four modules of three switches each."""

# EVOLVE-BLOCK-START
FIRST = [False, False, False]
SECOND = [False, False, False]
THIRD = [False, False, False]
FOURTH = [False, False, False]
# EVOLVE-BLOCK-END
