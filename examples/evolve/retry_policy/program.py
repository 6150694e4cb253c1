"""How long to wait for a service that fails now and then, and when to give up."""

# EVOLVE-BLOCK-START
TIMEOUT = 10.0  # 0.2..30.0: seconds until a call is given up
ATTEMPTS = 3  # 1..8
WAIT = 0.1  # 0.0..20.0: seconds before the second call
GROWTH = 1.0  # 1.0..4.0: of the wait with every call


def decide(attempt, elapsed, refused):
    """What to do after `attempt` failed calls: (seconds to wait, timeout of the next call) or None.

    `elapsed` is the time since the request came; `refused` says that the last call failed at once.
    """
    if attempt >= ATTEMPTS:
        return None
    wait = WAIT * GROWTH**attempt if attempt else 0.0
    return wait, TIMEOUT


# EVOLVE-BLOCK-END
