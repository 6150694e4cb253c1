"""A service that is well, slow, or down, in spells; a policy is worth what its requests came to.

An answered request is worth 1, less for every second that it took and every call that it made. Calls
of a service that is down hang or are refused; calls of a slow one are answered late or not at all.
"""

import importlib.util
import random

TRAINING = range(4)
REQUESTS = 400
PER_SECOND, PER_CALL = 0.03, 0.04
SPELLS = {"well": (60.0, "slow", "down"), "slow": (12.0, "well", "down"), "down": (8.0, "well", "slow")}


class Service:
    """The state of the service over time, the same for every policy."""

    def __init__(self, seed, length):
        draw = random.Random(seed)
        self.ends, self.states = [], []
        at, state = 0.0, "well"
        while at < length:
            mean, usual, other = SPELLS[state]
            at += draw.expovariate(1.0 / mean)
            self.ends.append(at)
            self.states.append(state)
            state = usual if draw.random() < 0.7 else other

    def state(self, at):
        low, high = 0, len(self.ends) - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.ends[middle] > at else (middle + 1, high)
        return self.states[low]

    def call(self, at, draw):
        """Seconds until it answers, None if never, and seconds until it refuses, None if it does not."""
        chance, latency = draw.random(), draw.lognormvariate(-1.2, 0.5)
        state = self.state(at)
        if state == "well":
            return (latency, None) if chance < 0.97 else (None, None)
        if state == "slow":
            return (latency * 12.0, None) if chance < 0.6 else (None, None)
        return (None, 0.05) if chance < 0.5 else (None, None)


def request(decide, service, at, draw):
    """What one request is worth."""
    now, attempt, refused = at, 0, False
    while attempt < 20:
        decision = decide(attempt, now - at, refused)
        if decision is None:
            return -PER_SECOND * (now - at) - PER_CALL * attempt
        wait, timeout = (float(value) for value in decision)
        if not (0.0 <= wait <= 120.0 and 0.0 < timeout <= 120.0):
            raise ValueError(f"cannot wait {wait} s or time out after {timeout} s")
        now += wait
        answered, refusing = service.call(now, draw)
        attempt += 1
        if answered is not None and answered <= timeout:
            return 1.0 - PER_SECOND * (now + answered - at) - PER_CALL * attempt
        refused = refusing is not None and refusing <= timeout
        now += refusing if refused else timeout
    return -PER_SECOND * (now - at) - PER_CALL * attempt


def load(path):
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program.decide


def worth(decide, seeds):
    """Mean worth of a request over the services with these seeds."""
    total = 0.0
    for seed in seeds:
        service = Service(seed, 3.0 * REQUESTS + 600.0)
        total += sum(
            request(decide, service, 3.0 * number, random.Random(f"{seed}:{number}"))
            for number in range(REQUESTS)
        )
    return total / (len(seeds) * REQUESTS)


def evaluate(path):
    return {"combined_score": worth(load(path), TRAINING)}
