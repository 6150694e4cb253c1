"""NLPO: PPO that chooses among the likely tokens only (Ramamurthy et al. 2022, RL4LMs).

    python examples/nlpo.py [--seed 0] [--top-mask 0.85] [--shuffled]

A language model chooses among many tokens of which few make sense.  NLPO keeps a *mask policy*, a
copy of the policy refreshed every so many updates, and leaves only the tokens that make up the first
`top_mask` of its probability, when sampling and when learning alike; what is left is renormalised.
With `top_mask` 1 it is PPO to the bit.  It is rarely used, so it lives here and not among the
optimizers; the losses are those of `whet.learn.training.losses`.

The task: after one of five questions, say three words out of a vocabulary of 200, of which five are
ever right.  The policy begins as a cloned one would: most of what it says is one of the five.
Differences from the paper: no KL controller (the toy needs no reference), and one batch per update.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from whet.learn.training.losses import clipped, gae, value_loss, whiten

VOCABULARY, USEFUL, LENGTH = 200, 5, 3


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to train."""

    top_mask: float = 0.85
    """Probability that the tokens left make up; 1 leaves all, which is PPO."""
    refresh: int = 5
    """Updates between copies of the policy to the mask policy."""
    episodes: int = 64
    """Sampled for each update."""
    passes: int = 4
    """Over each batch."""
    learning_rate: float = 5e-3
    clip: float = 0.2
    value_coefficient: float = 0.5
    entropy_bonus: float = 0.05
    """What is masked is not learned about, so a policy that is sure too soon stays wrong."""
    gamma: float = 0.99
    lam: float = 0.95


class Policy(nn.Module):
    """Question and what was said so far → logits of the next word, and what is to be expected."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.question = nn.Embedding(USEFUL, width)
        self.word = nn.Embedding(VOCABULARY + 1, width)
        self.place = nn.Embedding(LENGTH, width)
        self.inside = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.Tanh())
        self.head, self.value = nn.Linear(width, VOCABULARY), nn.Linear(width, 1)
        with torch.no_grad():
            self.head.weight.mul_(0.3)
            self.head.bias.normal_(0.0, 0.5)
            # what cloning has left: the five words have most of the probability, whatever the question
            rest = self.head.bias[USEFUL:].exp().sum()
            self.head.bias[:USEFUL] = (1.5 * rest / USEFUL).log()

    def forward(self, question: Tensor, last: Tensor, place: int) -> tuple[Tensor, Tensor]:
        """(B,) questions and last words → (B, vocabulary) logits and (B,) values."""
        x = self.question(question) + self.word(last) + self.place.weight[place]
        x = self.inside(x)
        return self.head(x), self.value(x).squeeze(-1)


def nucleus(logits: Tensor, top: float) -> Tensor:
    """Which tokens make up the first `top` of the probability, (B, vocabulary); the likeliest always does."""
    if top >= 1.0:
        return torch.ones_like(logits, dtype=torch.bool)
    ordered, places = logits.softmax(dim=-1).sort(dim=-1, descending=True)
    before = ordered.cumsum(dim=-1) - ordered
    return torch.zeros_like(logits, dtype=torch.bool).scatter(1, places, before < top)


def masked(logits: Tensor, allowed: Tensor) -> Tensor:
    """Log-probabilities with what is not allowed at zero probability, renormalised."""
    return torch.log_softmax(logits.masked_fill(~allowed, float("-inf")), dim=-1)


@torch.no_grad()
def say(
    policy: Policy, mask: Policy, questions: Tensor, top: float, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Play all episodes: (B, T) last words, words, log-probabilities and values, and (B, T, V) what was allowed."""
    last = torch.full((len(questions),), VOCABULARY)
    columns: list[tuple[Tensor, ...]] = []
    for place in range(LENGTH):
        allowed = nucleus(mask(questions, last, place)[0], top)
        logits, value = policy(questions, last, place)
        scores = masked(logits, allowed)
        word = torch.multinomial(scores.exp(), 1, generator=generator).squeeze(1)
        columns.append((last, word, scores.gather(1, word.unsqueeze(1)).squeeze(1), value, allowed))
        last = word
    lasts, words, old, values, allowed = (torch.stack(one, dim=1) for one in zip(*columns, strict=True))
    return lasts, words, old, values, allowed


def train(
    seed: int, options: Options | None = None, *, updates: int = 60, shuffled: bool = False
) -> list[float]:
    """Mean reward of every batch, as it was sampled."""
    options = options or Options()
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    policy, mask = Policy(), Policy()
    mask.load_state_dict(policy.state_dict())
    optimizer = torch.optim.AdamW(policy.parameters(), lr=options.learning_rate, weight_decay=0.0)
    right = torch.arange(LENGTH)
    curve = []
    for update in range(updates):
        if update % options.refresh == 0:
            mask.load_state_dict(policy.state_dict())
        questions = torch.randint(0, USEFUL, (options.episodes,), generator=generator)
        lasts, words, old, values, allowed = say(policy, mask, questions, options.top_mask, generator)
        rewards = (words == (questions.unsqueeze(1) + right) % USEFUL).float() / LENGTH
        curve.append(float(rewards.sum(dim=1).mean()))
        if shuffled:
            rewards = rewards[torch.randperm(len(rewards), generator=generator)]
        found = [
            gae(one, value, gamma=options.gamma, lam=options.lam)
            for one, value in zip(rewards.tolist(), values.tolist(), strict=True)
        ]
        advantages = whiten(torch.tensor([one for one, _ in found]))
        returns = torch.tensor([one for _, one in found])
        for _ in range(options.passes):
            loss = torch.zeros(())
            for place in range(LENGTH):
                logits, value = policy(questions, lasts[:, place], place)
                scores = masked(logits, allowed[:, place])
                now = scores.gather(1, words[:, place : place + 1]).squeeze(1)
                each, _ = clipped(
                    now, old[:, place], advantages[:, place], low=options.clip, high=options.clip
                )
                missed = value_loss(value, values[:, place], returns[:, place], clip=options.clip)
                spread = -(scores.exp() * scores.masked_fill(~allowed[:, place], 0.0)).sum(dim=-1)
                part = each + options.value_coefficient * missed - options.entropy_bonus * spread
                loss = loss + part.mean() / LENGTH
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
    return curve


def needed(curve: list[float], threshold: float = 0.7) -> int:
    """Batches until three in a row have reached the threshold; one more than there are if none did."""
    for number in range(2, len(curve)):
        if min(curve[number - 2 : number + 1]) >= threshold:
            return number + 1
    return len(curve) + 1


def main() -> None:
    """Print both curves."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--top-mask", type=float, default=0.85)
    parser.add_argument("--shuffled", action="store_true", help="the control: rewards of other episodes")
    given = parser.parse_args()
    for name, top in (("NLPO", given.top_mask), ("PPO", 1.0)):
        options = Options(top_mask=top)
        curve = train(given.seed, options, updates=given.updates, shuffled=given.shuffled)
        shown = " ".join(f"{value:.2f}" for value in curve[:: max(1, len(curve) // 10)])
        print(f"{name}: {shown}; {needed(curve)} batches of {options.episodes} to .7")


if __name__ == "__main__":
    main()
