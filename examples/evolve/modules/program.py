"""Six modules of three switches each."""


# EVOLVE-BLOCK-START
def first():
    return [False, False, False]


def second():
    return [False, False, False]


def third():
    return [False, False, False]


def fourth():
    return [False, False, False]


def fifth():
    return [False, False, False]


def sixth():
    return [False, False, False]


# EVOLVE-BLOCK-END
