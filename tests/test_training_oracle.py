"""Losses and their gradients against TRL 1.16's own trainers, on the same weights and the same tokens.

TRL computes through transformers' Qwen2 and its padded batches, we through our decoder and packed
targets; what is compared is the loss and the gradient on every parameter, through all of both.
"""

import random
import warnings

import pytest
import torch

from whet.learn.training.batch import Merged, marked, parts
from whet.learn.training.learner import chosen_logprobs, cloning_loss
from whet.learn.training.losses import bradley_terry, dpo, ipo, kto, kto_divergence, unit_sums
from whet.learn.training.model import ModelOptions, build, configuration, to_transformers
from whet.learn.training.network import ScalarHead, predict, target_states
from whet.learn.training.policy_gradient import PolicyLoss

trl = pytest.importorskip("trl")

SHAPE = ModelOptions(hidden=32, layers=2, heads=4, kv_heads=2, ffn=48, max_length=64)
WORDS = 23
ROWS = 8
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


def decoder(seed=0):
    return build(SHAPE, WORDS, seed)


def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(WORDS)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", eos_token="w3")


def trainer(name, folder, model, rows, *, reference=None, **options):
    """A trainer of TRL's over this model, made in the quiet: it warns of many things."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from datasets import Dataset

        config = getattr(trl, f"{name}Config")(
            output_dir=str(folder),
            use_cpu=True,
            report_to=[],
            bf16=False,
            gradient_checkpointing=False,
            disable_tqdm=True,
            **options,
        )
        more = {"ref_model": reference} if reference is not None else {}
        if name in ("GRPO", "RLOO"):
            more["reward_funcs"] = lambda completions, **_: [0.0] * len(completions)
        made = getattr(trl, f"{name}Trainer")(
            model=model,
            args=config,
            train_dataset=Dataset.from_dict(rows),
            processing_class=tokenizer(),
            **more,
        )
    made.current_gradient_accumulation_steps = 1
    return made


def quietly(function, *arguments):
    """transformers tells TRL of deprecations; they are theirs to mend."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments)


def answers(seed=0, rows=ROWS):
    """Prompts, completions, which of their tokens were chosen, log-probabilities as sampled, advantages."""
    rng = random.Random(seed)

    def ids(low, high):
        return [rng.randrange(4, WORDS) for _ in range(rng.randint(low, high))]

    made = []
    for _ in range(rows):
        completion = ids(3, 9)
        chosen = [rng.random() < 0.7 for _ in completion]
        chosen[rng.randrange(len(chosen))] = True
        made.append(
            {
                "prompt": ids(2, 6),
                "completion": completion,
                "chosen": chosen,
                "old": [-rng.uniform(2.0, 4.5) for _ in completion],
                "reference": [-rng.uniform(2.0, 4.5) for _ in completion],
                "advantage": rng.gauss(0, 1),
            }
        )
    return made


def merged(rows, *, all_chosen=False, old=None):
    """Ours: one sequence per row."""
    found = []
    for unit, row in enumerate(rows):
        begin = len(row["prompt"])
        kept = [i for i, chosen in enumerate(row["chosen"]) if chosen or all_chosen]
        found.append(
            Merged(
                unit,
                [*row["prompt"], *row["completion"]],
                [begin + i for i in kept],
                [(old or row)["old"][i] for i in kept],
                [row["advantage"]] * len(kept),
            )
        )
    return found


def padded(lists, *, left=False, value=0):
    most = max(map(len, lists))
    return torch.tensor(
        [
            ([value] * (most - len(one)) + one) if left else (one + [value] * (most - len(one)))
            for one in lists
        ]
    )


def theirs(rows, *, tool_mask=True):
    """TRL's policy-gradient inputs: prompts padded on the left, completions on the right."""
    made = {
        "prompt_ids": padded([row["prompt"] for row in rows], left=True),
        "prompt_mask": padded([[1] * len(row["prompt"]) for row in rows], left=True),
        "completion_ids": padded([row["completion"] for row in rows]),
        "completion_mask": padded([[1] * len(row["completion"]) for row in rows]),
        "advantages": torch.tensor([row["advantage"] for row in rows]),
        "old_per_token_logps": padded([row["old"] for row in rows], value=0.0),
        "ref_per_token_logps": padded([row["reference"] for row in rows], value=0.0),
    }
    if tool_mask:
        made["tool_mask"] = padded([[int(c) for c in row["chosen"]] for row in rows])
    made["num_items_in_batch"] = torch.tensor(float(sum(sum(row["chosen"]) for row in rows)))
    return made


def gradients(model):
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def same(ours, expected_loss, expected, own):
    """Loss and every gradient; transformers gives its padding row of the embedding none."""
    assert ours == pytest.approx(expected_loss, rel=1e-4, abs=1e-5)
    compared = 0
    for name, parameter in own.weights().items():
        if name in expected:
            mine, other = parameter.grad, expected[name]
            if "embed" in name:
                mine, other = mine[4:], other[4:]
            torch.testing.assert_close(mine, other, **TOLERANCE)
            compared += float(other.abs().max()) > 1e-6
    assert compared > 10


VARIANTS = {
    "grpo": ({"loss_type": "grpo"}, {"aggregation": "grpo"}),
    "bnpo": ({"loss_type": "bnpo"}, {"aggregation": "bnpo"}),
    "dr_grpo": ({"loss_type": "dr_grpo"}, {"aggregation": "dr_grpo", "completion_length": 16}),
    "dapo": (
        {"loss_type": "dapo", "epsilon_high": 0.28},
        {"aggregation": "dapo", "clip_high": 0.28},
    ),
    "gspo": (
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.02},
        {"aggregation": "grpo", "ratio": "sequence", "clip_low": 0.02, "clip_high": 0.02},
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_policy_gradient_losses_equal_trls(name, tmp_path):
    options, own_options = VARIANTS[name]
    own, rows = decoder(), answers()
    other = trainer(
        "GRPO",
        tmp_path,
        to_transformers(own),
        {"prompt": ["w4"] * ROWS},
        num_generations=ROWS,
        per_device_train_batch_size=ROWS,
        beta=0.0,
        max_completion_length=16,
        **{"epsilon": 0.2, **options},
    )
    other.args.steps_per_generation = 1
    other.model.train()
    loss = quietly(other._compute_loss, other.model, theirs(rows))
    loss.backward()
    cut = parts(merged(rows))
    assert len(cut) == 1
    mine = PolicyLoss(parts=cut, **{"clip_high": 0.2, **own_options})
    value = mine(predict(own, cut[0]), cut[0])
    value.backward()
    same(value.item(), loss.item(), gradients(other.model), own)
    assert 0 < mine.metrics["clip_share"] < 1  # both sides of the clip were taken


def test_rloo_equals_trls(tmp_path):
    own, rows = decoder(), answers()
    with torch.no_grad():  # near enough that not every sequence is clipped
        for number, (row, sequence) in enumerate(zip(rows, merged(rows, all_chosen=True), strict=True)):
            (part,) = parts([sequence])
            now = chosen_logprobs(own, part)
            shift = 0.15 * (number - 4) / len(now)
            row["old"] = (now + shift).tolist()
    other = trainer(
        "RLOO",
        tmp_path,
        to_transformers(own),
        {"prompt": ["w4"] * ROWS},
        num_generations=ROWS,
        per_device_train_batch_size=ROWS,
        max_completion_length=16,
        epsilon=0.2,
        beta=0.0,
    )
    other.model.train()
    given = theirs(rows, tool_mask=False)
    given["old_logps"] = torch.tensor([sum(row["old"]) for row in rows])
    loss = quietly(other._compute_loss, other.model, given)
    loss.backward()
    cut = parts(merged(rows, all_chosen=True))
    mine = PolicyLoss(parts=cut, aggregation="grpo", ratio="trajectory", clip_high=0.2)
    value = mine(predict(own, cut[0]), cut[0])
    value.backward()
    same(value.item(), loss.item(), gradients(other.model), own)
    assert 0 < mine.metrics["clip_share"] < 1


def test_cloning_equals_trls_sft(tmp_path):
    own, rows = decoder(), answers()
    other = trainer("SFT", tmp_path, to_transformers(own), {"prompt": ["w4"], "completion": ["w5 w6"]})
    other.model.train()
    whole = [[*row["prompt"], *row["completion"]] for row in rows]
    labels = [
        [-100] * len(row["prompt"])
        + [i if c else -100 for i, c in zip(row["completion"], row["chosen"], strict=True)]
        for row in rows
    ]
    loss = quietly(
        other.compute_loss,
        other.model,
        {
            "input_ids": padded(whole),
            "attention_mask": padded([[1] * len(one) for one in whole]),
            "labels": padded(labels, value=-100),
        },
    )
    loss.backward()
    cut = parts(merged(rows))
    value = cloning_loss(cut)(predict(own, cut[0]), cut[0])
    value.backward()
    same(value.item(), loss.item(), gradients(other.model), own)


def chosen_sums(model, part, count):
    return unit_sums(chosen_logprobs(model, part), part.units, count)


@pytest.mark.parametrize("kind", ["sigmoid", "ipo"])
def test_dpo_and_ipo_equal_trls(kind, tmp_path):
    own, reference = decoder(0), decoder(1)
    rows = answers(3)
    half = ROWS // 2
    for one, other_row in zip(rows[:half], rows[half:], strict=True):
        other_row["prompt"] = one["prompt"]
    whole = [[*row["prompt"], *row["completion"]] for row in rows]
    other = trainer(
        "DPO",
        tmp_path,
        to_transformers(own),
        {"prompt": ["w4"], "chosen": ["w5"], "rejected": ["w6"]},
        reference=to_transformers(reference),
        beta=0.3,
        loss_type=[kind],
    )
    other.model.train()
    mask = [[0] * len(row["prompt"]) + [1] * len(row["completion"]) for row in rows]
    loss = quietly(
        other._compute_loss,
        other.model,
        {
            "input_ids": padded(whole),
            "attention_mask": padded([[1] * len(one) for one in whole]),
            "completion_mask": padded(mask),
        },
        False,
    )
    loss.backward()
    cut = parts(merged(rows, all_chosen=True))
    part = cut[0]
    with torch.no_grad():
        there = chosen_sums(reference, part, ROWS)
    ratio = chosen_sums(own, part, ROWS) - there
    lengths = torch.bincount(part.units, minlength=ROWS).float()
    if kind == "sigmoid":
        value = dpo(ratio[:half], ratio[half:], beta=0.3).mean()
    else:
        value = ipo(ratio[:half], ratio[half:], (lengths[:half], lengths[half:]), beta=0.3).mean()
    value.backward()
    same(value.item(), loss.item(), gradients(other.model), own)


def test_kto_equals_trls(tmp_path):
    own, reference = decoder(0), decoder(1)
    rows = answers(5)
    desirable = [True, False, False, True, True, False, True, False]
    other = trainer(
        "KTO",
        tmp_path,
        to_transformers(own),
        {"prompt": ["w4", "w5"], "completion": ["w5", "w6"], "label": [True, False]},
        reference=to_transformers(reference),
        beta=0.3,
        desirable_weight=1.0,
        undesirable_weight=0.7,
        per_device_train_batch_size=2,
    )
    other.model.train()
    # Each prompt with the answer to the next one is what the reference point is measured on.
    crossed = [{**row, "completion": rows[i - 1]["completion"]} for i, row in enumerate(rows)]
    crossed = [{**row, "chosen": [True] * len(row["completion"])} for row in crossed]

    def tensors(given, prefix=""):
        whole = [[*row["prompt"], *row["completion"]] for row in given]
        mask = [[0] * len(row["prompt"]) + [1] * len(row["completion"]) for row in given]
        return {
            f"{prefix}input_ids": padded(whole),
            f"{prefix}attention_mask": padded([[1] * len(one) for one in whole]),
            f"{prefix}completion_mask": padded(mask),
        }

    loss = quietly(
        other._compute_loss,
        other.model,
        {**tensors(rows), **tensors(crossed, "KL_"), "label": torch.tensor(desirable)},
        False,
    )
    loss.backward()
    crossed = [{**row, "old": [0.0] * len(row["completion"])} for row in crossed]
    (part,) = parts(merged(rows, all_chosen=True))
    (other_part,) = parts(merged(crossed, all_chosen=True))
    with torch.no_grad():
        point = kto_divergence(chosen_sums(own, other_part, ROWS) - chosen_sums(reference, other_part, ROWS))
        there = chosen_sums(reference, part, ROWS)
    ratio = chosen_sums(own, part, ROWS) - there
    value = kto(ratio, torch.tensor(desirable), point, beta=0.3, weights=(1.0, 0.7)).mean()
    value.backward()
    same(value.item(), loss.item(), gradients(other.model), own)


@pytest.mark.parametrize("centring", [None, 0.05])
def test_the_reward_models_loss_equals_trls(centring, tmp_path):
    from transformers import Qwen2Config, Qwen2ForSequenceClassification

    own = decoder()
    head = ScalarHead(SHAPE.hidden)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        head.out.weight.normal_(0.0, 0.3, generator=generator)
    config = {key: value for key, value in configuration(own).items() if key not in ("whet", "dtype")}
    scorer = Qwen2ForSequenceClassification(Qwen2Config(**config, num_labels=1))
    inner = {f"model.{k}" if not k.startswith("model.") else k: v for k, v in own.weights().items()}
    missing, unexpected = scorer.load_state_dict(
        {**{k: v.detach() for k, v in inner.items()}, "score.weight": head.out.weight.detach()}, strict=False
    )
    assert not missing
    assert not unexpected
    options = {} if centring is None else {"center_rewards_coefficient": centring}
    rows = answers(7)
    whole = [[*row["prompt"], *row["completion"]] for row in rows]
    other = trainer("Reward", tmp_path, scorer, {"chosen": ["w5 w6"], "rejected": ["w6 w5"]}, **options)
    other.model.train()
    loss = quietly(
        other.compute_loss,
        other.model,
        {"input_ids": padded(whole), "attention_mask": padded([[1] * len(one) for one in whole])},
    )
    loss.backward()
    ends = [marked(sequence, [len(sequence.ids) - 1]) for sequence in merged(rows)]
    (part,) = parts(ends)
    scores = unit_sums(head(target_states(own, part)), part.units, ROWS)
    half = ROWS // 2
    value = bradley_terry(scores[:half], scores[half:], centring=centring or 0.0).mean()
    value.backward()
    # the state comes before the final norm's weight, which theirs multiplies in: 1 in a fresh model
    torch.testing.assert_close(head.out.weight.grad, other.model.score.weight.grad, **TOLERANCE)
    own.weight("model.norm.weight").grad = None
    expected = {n: g for n, g in gradients(other.model).items() if n != "model.norm.weight"}
    same(value.item(), loss.item(), expected, own)
