"""An agent that knows nothing of training, behind the gateway: what it did trains as if it had run in process."""

import asyncio
import random
from dataclasses import replace

import openai
import pytest
from gateway_world import world
from methods_toys import context
from policy_world import TOKEN, embedded, serving
from training_toys import DIGITS, SMALL, VOCABULARY, observation_ids

from whet.learn.optimizers.grpo import GRPO, GRPOOptions
from whet.learn.training import model
from whet.learn.training.batch import merge
from whet.learn.training.capture import require
from whet.learn.training.local import LocalModels, fresh
from whet.learn.training.sampler import Sampler
from whet.learn.training.serving.host import Host
from whet.learn.training.serving.text import WordText
from whet.record.tracing.assemble import Assembler
from whet.serve.gateway import Upstream
from whet.types import Bundle, Group, Outcome, Score, Step, Task, Tokens, Trajectory

GROUPS, SIZE = 4, 4


def agent(client: openai.OpenAI, digits: list[str], seed: int) -> list[str]:
    """Three turns of a conversation, as an application has them."""
    messages, said = [], []
    for turn, asked in enumerate((*digits, "first")):
        messages.append({"role": "user", "content": asked})
        answer = client.chat.completions.create(
            model="policy", messages=messages, seed=seed * 10 + turn, max_tokens=3
        )
        said.append(answer.choices[0].message.content or "")
        messages.append({"role": "assistant", "content": said[-1]})
    return said


def judged(digits: list[str], said: list[str]) -> Score:
    wanted = (*digits, digits[0])
    right = sum(word in answer.split() for word, answer in zip(wanted, said, strict=True))
    return Score("right", right / 3)


class Noting(Host):
    """A host that keeps what its engines generated."""

    def __init__(self):
        super().__init__()
        self.generated = []

    def ask(self, *given, **options):
        ticket = super().ask(*given, **options)
        self.generated.append(ticket.generation)
        return ticket


def captured(folder, todo):
    """Trajectories from the record of the gateway in front of the policy server, and those of its engine."""
    found = []
    host = Noting()
    with serving(model.load(folder), WordText(VOCABULARY), policy_version="0", host=host) as server:
        upstream = Upstream(url=f"{server.url}/v1", key=TOKEN, tokens=True)
        with world({"default": upstream}) as made:
            for task in todo:
                for member in range(SIZE):
                    run = f"{task.id}-{member}"
                    with made.openai(run) as client:
                        said = agent(client, task.initial_state["digits"], member + int(task.id) * 100)
                    found.append((run, task, judged(task.initial_state["digits"], said)))
            made.settle()
            Assembler(made.store).flush()
            by_run = {one.meta["run"]: one for one in made.store.trajectories()}
    away, inside = [], []
    for place, (run, task, score) in enumerate(found):
        outcome = Outcome.SUCCESS if score.value == 1 else Outcome.FAILURE
        away.append(replace(by_run[run], task=task, outcome=outcome).scored(score))
        mine = host.generated[3 * place : 3 * place + 3]
        steps = [
            Step(kind="llm", tokens=Tokens(one.prompt, one.output, one.logprobs, None, "0")) for one in mine
        ]
        inside.append(Trajectory(task=task, steps=steps, outcome=outcome).scored(score))
    return away, inside


async def at_home(folder, todo):
    """The same conversations with the sampler in this process."""
    sampler = Sampler(model.load(folder), policy_version="0")
    found = []
    for task in todo:
        digits = task.initial_state["digits"]
        for member in range(SIZE):
            seed = member + int(task.id) * 100
            ids, steps, said = [], [], []
            for turn, asked in enumerate((*digits, "first")):
                ids += observation_ids(asked, first=not ids)
                sampled = await sampler.session(seed * 10 + turn).generate(ids, stop_id=3, max_new_tokens=3)
                steps.append(Step(kind="llm", tokens=sampled.tokens))
                said.append(" ".join(VOCABULARY.decode([id for id in sampled.output_ids if id > 3])))
                ids = [*ids, *sampled.output_ids]
                if sampled.output_ids[-1] != 3:
                    ids.append(3)  # the turn ends, whether the policy said so or not
            score = judged(digits, said)
            outcome = Outcome.SUCCESS if score.value == 1 else Outcome.FAILURE
            found.append(Trajectory(task=task, steps=steps, outcome=outcome).scored(score))
    return found


def trained(folder, trajectories, where):
    """Weights after some rounds of GRPO on these."""
    from methods_toys import FAST

    groups = [
        Group(trajectories[start].task, trajectories[start : start + SIZE])
        for start in range(0, len(trajectories), SIZE)
    ]

    async def run():
        models = LocalModels()
        bundle, state = Bundle([model.weights_version("policy", folder, meta={"policy_version": 0})]), None
        options = GRPOOptions(score="right", steps=4, checkpoint_every=4, group_size=SIZE, optim=FAST)
        optimizer = GRPO(options, models=models)
        for _ in range(4):
            given = context(where, state=state)
            update = await optimizer.step(bundle, groups, given)
            bundle, state = update.bundle, update.state
        return {name: weight.detach() for name, weight in models.decoder(bundle["policy"]).weights().items()}

    return asyncio.run(run())


def test_what_an_unchanged_agent_did_trains_as_if_it_had_run_in_process(tmp_path):
    rng = random.Random(5)
    todo = [Task(id=str(k), initial_state={"digits": rng.choices(DIGITS, k=2)}) for k in range(GROUPS)]
    start = fresh("policy", tmp_path / "w", options=SMALL, vocab_size=len(VOCABULARY), seed=7)
    folder = tmp_path / "w"
    assert start.content["path"] == str(folder.resolve())
    away, inside = captured(folder, todo)
    home = asyncio.run(at_home(folder, todo))

    survey = require(away, score="right")
    assert survey.trainable == survey.continuous == GROUPS * SIZE
    for far, near in zip(away, home, strict=True):
        mine = [step.tokens for step in near.steps]
        theirs = [step.tokens for step in far.steps if step.tokens is not None]
        assert [(t.prompt_ids, t.output_ids) for t in theirs] == [(t.prompt_ids, t.output_ids) for t in mine]
        for one, other in zip(theirs, mine, strict=True):
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-6)
            assert one.policy_version == "0"

    before = {name: weight.detach() for name, weight in model.load(folder).weights().items()}
    one, other = trained(folder, away, tmp_path / "away"), trained(folder, inside, tmp_path / "inside")
    moved = max(float((one[name] - before[name]).abs().max()) for name in one)
    assert moved > 1e-2, "training did nothing, so that equal weights would mean nothing"
    assert max(float((one[name] - other[name]).abs().max()) for name in one) < 1e-6
    # And so does the sampler in process, whose log-probabilities differ in their last bit.
    near = trained(folder, home, tmp_path / "home")
    assert max(float((one[name] - near[name]).abs().max()) for name in one) < 1e-3 * moved

    # The comparison can fail: one log-probability that is wrong moves the weights by more than that.
    spoiled = [_spoiled(trajectory) if place == 0 else trajectory for place, trajectory in enumerate(inside)]
    worse = trained(folder, spoiled, tmp_path / "spoiled")
    assert max(float((one[name] - worse[name]).abs().max()) for name in one) > 1e-6


def _spoiled(trajectory: Trajectory) -> Trajectory:
    first, *rest = trajectory.steps
    assert isinstance(first.tokens, Tokens)
    wrong = replace(first.tokens, logprobs=[value - 0.05 for value in first.tokens.logprobs])
    return replace(trajectory, steps=[replace(first, tokens=wrong), *rest])


@pytest.mark.parametrize("stream", [False, True])
def test_what_the_server_put_in_is_not_learned_from(stream):
    forcing = {"end": "<act>", "more": "first", "min_tokens": 20, "times": 50}
    with serving(*embedded()) as server:
        upstream = Upstream(url=f"{server.url}/v1", key=TOKEN, tokens=True)
        with world({"default": upstream}) as made:
            with made.openai("forced") as client:
                answer = client.chat.completions.create(
                    model="policy",
                    messages=[{"role": "user", "content": "3"}],
                    seed=2,
                    max_tokens=24,
                    stream=stream,
                    extra_body={"budget_forcing": forcing},
                )
                shown = (
                    [chunk.model_dump_json() for chunk in answer] if stream else [answer.model_dump_json()]
                )
            made.settle()
            Assembler(made.store).flush()
            (found,) = made.store.trajectories()
    assert not any("token_mask" in one or "token_ids" in one for one in shown), (
        "the agent did not ask for them"
    )
    (tokens,) = [step.tokens for step in found.steps if step.tokens is not None]
    (merged,), counts = merge(found)
    first = VOCABULARY.encode(["first"])[0]
    put_in = [id for id, chosen in zip(tokens.output_ids, tokens.mask, strict=True) if not chosen]
    assert set(put_in) == {first}
    assert counts.targets == len(tokens.output_ids) - len(put_in)
    assert len(merged.targets) == counts.targets
