"""Simulated users: some of them rate an answer, and some of those are wrong."""

from __future__ import annotations

import random
from dataclasses import dataclass

from ...types import Feedback, Trajectory, digest


@dataclass(frozen=True, kw_only=True)
class Users:
    """The source of the main job's only labels."""

    rate: float = 0.4
    """Share of answers that get a thumb."""
    noise: float = 0.15
    """Share of the thumbs that point the wrong way."""
    coin: bool = False
    """Thumbs are coin flips: the negative control for whatever learns from them."""
    seed: int = 0

    def thumb(self, trajectory: Trajectory) -> Feedback | None:
        """The user's thumb on one run, up (1) or down (-1), or None.

        It depends on the seed, the question and which agent was asked, so it is the same after a restart
        and in a second job on the same store.
        """
        identity = (self.seed, trajectory.task.id, trajectory.seed, dict(trajectory.versions))
        rng = random.Random(digest(identity))
        # All three whatever comes of them, so that the coin's thumbs fall on the same runs as the others.
        rates, wrong, flip = rng.random() < self.rate, rng.random() < self.noise, rng.random() < 0.5
        success = trajectory.score("success")
        if not rates or success is None:
            return None
        up = flip if self.coin else (success > 0.5) != wrong
        return Feedback(
            run=trajectory.id,
            value=1.0 if up else -1.0,
            id=digest(("thumb", self.seed, trajectory.id)),
            at=trajectory.started,
        )
