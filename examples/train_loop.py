"""Reinforcement learning of a language model, flat: one file, read from top to bottom.

    python examples/train_loop.py [--seed 0] [--rounds 60] [--shuffled]

A policy of a few thousand parameters answers two questions in a row, and learns from
the share of its answers that were right.  This is what `whet.learn.optimizers.grpo` does without what a
real run needs: no refusals, no alarms, no checkpoints, no merging of long contexts, no
reuse of what was computed.  Read it first, then `src/whet/learn/training/rounds.py`.
Nothing of whet is imported; `--shuffled` is the control, from which nothing is learned.
"""

from __future__ import annotations

import argparse
import random

import torch
import torch.nn.functional as F
from torch import Tensor, nn

DIGITS = 4
BOS, ASK = DIGITS, DIGITS + 1  # after the digits: where a context begins, and where an answer is wanted
VOCABULARY = DIGITS + 2
TASKS, GROUP, TURNS = 32, 8, 2


class Policy(nn.Module):
    """One layer of causal attention: tokens in, logits of the next token out."""

    def __init__(self, width: int = 32, longest: int = 16) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.place = nn.Embedding(longest, width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.inside = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width)
        )
        self.norm, self.last = nn.LayerNorm(width), nn.LayerNorm(width)
        nn.init.normal_(self.token.weight, std=0.1)  # a policy that is sure of itself explores nothing

    def forward(self, ids: Tensor) -> Tensor:
        """(B, L) ids → (B, L, vocabulary) logits."""
        length = ids.shape[1]
        x = self.token(ids) + self.place(torch.arange(length))
        ahead = torch.ones(length, length, dtype=torch.bool).triu(1)
        normal = self.norm(x)
        x = x + self.attention(normal, normal, normal, attn_mask=ahead, need_weights=False)[0]
        x = x + self.inside(x)
        return F.linear(self.last(x), self.token.weight)


@torch.no_grad()
def roll_out(
    policy: Policy, questions: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Play every episode, all of them at once.

    Args:
        questions: (B, TURNS)

    Returns:
        ids (B, L), which of them the policy chose (B, L), their log-probabilities when they were
        sampled (B, L), and rewards (B,).
    """
    batch = len(questions)
    ids = torch.full((batch, 1), BOS)
    chosen, old = torch.zeros(batch, 1, dtype=torch.bool), torch.zeros(batch, 1)
    good = torch.zeros(batch)
    for turn in range(TURNS):
        # the environment speaks: two tokens that no loss will fall on
        seen = torch.stack((questions[:, turn], torch.full((batch,), ASK)), dim=1)
        ids = torch.cat((ids, seen), dim=1)
        chosen = torch.cat((chosen, torch.zeros(batch, 2, dtype=torch.bool)), dim=1)
        old = torch.cat((old, torch.zeros(batch, 2)), dim=1)
        # the policy answers with one token, and what it was worth then is kept
        logprobs = torch.log_softmax(policy(ids)[:, -1], dim=-1)
        answer = torch.multinomial(logprobs.exp(), 1, generator=generator)
        ids = torch.cat((ids, answer), dim=1)
        chosen = torch.cat((chosen, torch.ones(batch, 1, dtype=torch.bool)), dim=1)
        old = torch.cat((old, logprobs.gather(1, answer)), dim=1)
        good += answer.squeeze(1) == (questions[:, turn] + 1) % DIGITS  # it wants the next digit
    return ids, chosen, old, good / TURNS


def learn(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    played: tuple[Tensor, Tensor, Tensor],
    advantages: Tensor,
) -> None:
    """One step of the clipped policy gradient, mean over the tokens that the policy chose."""
    ids, chosen, old = played
    # the logits at a place predict the token after it: hence the shift by one
    logprobs = torch.log_softmax(policy(ids)[:, :-1], dim=-1)
    now = logprobs.gather(2, ids[:, 1:].unsqueeze(2)).squeeze(2)
    ratio = (now - old[:, 1:]).exp()
    gain = advantages.unsqueeze(1)
    each = torch.minimum(ratio * gain, ratio.clamp(0.8, 1.28) * gain)
    mask = chosen[:, 1:]
    entropy = -(logprobs.exp() * logprobs).sum(dim=-1)
    loss = -((each + 0.01 * entropy) * mask).sum() / mask.sum()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()


def train(seed: int = 0, rounds: int = 60, *, shuffled: bool = False) -> list[float]:
    """Mean reward of every round, sampled as it learns."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    policy = Policy()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-2)
    curve = []
    for _ in range(rounds):
        # every task GROUP times, next to each other: the group is the baseline
        questions = torch.randint(0, DIGITS, (TASKS, TURNS), generator=generator)
        ids, chosen, old, rewards = roll_out(policy, questions.repeat_interleave(GROUP, 0), generator)
        curve.append(float(rewards.mean()))
        if shuffled:
            rewards = rewards[torch.randperm(len(rewards), generator=generator)]
        groups = rewards.view(TASKS, GROUP)
        advantages = (groups - groups.mean(dim=1, keepdim=True)).flatten()
        for _ in range(2):
            learn(policy, optimizer, (ids, chosen, old), advantages)
    return curve


def main() -> None:
    """Print the curve."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=random.randrange(100))
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--shuffled", action="store_true")
    options = parser.parse_args()
    curve = train(options.seed, options.rounds, shuffled=options.shuffled)
    for number in range(0, len(curve), max(1, len(curve) // 10)):
        print(f"round {number:3}  reward {curve[number]:.2f}  {'#' * round(40 * curve[number])}")
    print(f"last ten rounds: {sum(curve[-10:]) / len(curve[-10:]):.3f}")


if __name__ == "__main__":
    main()
