"""The model's weights, their files, and its computation against transformers'."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from training_toys import SMALL

from whet.errors import InputError, NotFoundError
from whet.learn.training import model
from whet.learn.training.forward import logits
from whet.learn.training.learner import Learner
from whet.learn.training.local import LocalModels, fresh
from whet.learn.training.model import ModelOptions, build, load, save, to_transformers, weights_version
from whet.learn.training.optim import OptimOptions
from whet.learn.training.serving.text import WordText, text_of
from whet.learn.training.vocabulary import Vocabulary
from whet.types import Version


def test_a_vocabulary_round_trips_and_puts_special_tokens_first(tmp_path):
    vocabulary = Vocabulary(["search", "read", "unknown"])
    vocabulary.save(tmp_path / "vocabulary.json")
    again = Vocabulary.load(tmp_path / "vocabulary.json")
    assert again == vocabulary
    assert again.id == vocabulary.id != Vocabulary(["read", "search", "unknown"]).id
    ids = again.encode(["<bos>", "search", "<act>", "unknown", "<eos>"])
    assert ids == [1, 4, 2, 6, 3]
    assert again.decode(ids) == ["<bos>", "search", "<act>", "unknown", "<eos>"]


def test_a_vocabulary_refuses_what_it_does_not_have(tmp_path):
    vocabulary = Vocabulary(["a"])
    with pytest.raises(InputError, match="'b'"):
        vocabulary.encode(["a", "b"])
    for wrong in (5, -1):
        with pytest.raises(InputError, match="out of range"):
            vocabulary.decode([wrong])
    for tokens in (["a", "a"], ["<pad>"], [""]):
        with pytest.raises(InputError):
            Vocabulary(tokens)
    (tmp_path / "odd.json").write_text('{"tokens": [1]}')
    with pytest.raises(InputError, match=r"odd\.json"):
        Vocabulary.load(tmp_path / "odd.json")


def test_the_default_model_is_small_and_made_by_its_seed():
    one, same, other = (build(ModelOptions(), 150, seed) for seed in (0, 0, 1))
    assert 85_000 < one.count() < 100_000
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not torch.equal(one.weight("model.embed_tokens.weight"), other.weight("model.embed_tokens.weight"))


@pytest.mark.parametrize("sizes", [{"hidden": 60, "heads": 8}, {"heads": 4, "kv_heads": 3}, {"layers": 0}])
def test_impossible_sizes_are_refused(sizes):
    with pytest.raises(InputError):
        ModelOptions(**sizes)


@pytest.mark.parametrize(
    "options",
    [
        ModelOptions(),
        ModelOptions(hidden=48, layers=3, heads=3, kv_heads=3, ffn=40, rope_theta=500.0),
        ModelOptions(layers=1, kv_heads=1),
    ],
    ids=["default", "three layers", "one layer"],
)
def test_logits_and_gradients_equal_transformers(options):
    torch.manual_seed(0)
    decoder = build(options, 50, 3)
    with torch.no_grad():
        for parameter in decoder.parameters():  # biases and norms that matter
            parameter.add_(0.1 * torch.randn_like(parameter))
    oracle = to_transformers(decoder)
    ids = torch.randint(1, 50, (3, 150))  # transformers keeps the gradient of padding, id 0, at zero
    wanted = torch.tensor([[2, 9, 149], [0, 1, 2], [5, 64, 119]])
    ours, theirs = logits(decoder, ids), oracle(ids).logits
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    some = logits(decoder, ids, wanted)
    torch.testing.assert_close(
        some, theirs.gather(1, wanted[..., None].expand(-1, -1, 50)), atol=1e-5, rtol=1e-5
    )
    weight = torch.randn_like(some)
    (some * weight).sum().backward()
    (theirs.gather(1, wanted[..., None].expand(-1, -1, 50)) * weight).sum().backward()
    for name, parameter in oracle.named_parameters():
        torch.testing.assert_close(decoder.weight(name).grad, parameter.grad, atol=1e-4, rtol=1e-4)


def test_padding_on_the_right_changes_nothing():
    decoder = build(SMALL, 11, 0)
    short = torch.randint(0, 11, (1, 9))
    longer = torch.cat((short, torch.randint(0, 11, (1, 6))), dim=1)
    torch.testing.assert_close(logits(decoder, longer)[:, :9], logits(decoder, short), atol=1e-6, rtol=1e-5)


def test_saved_weights_load_here_and_in_transformers(tmp_path):
    from transformers import AutoModelForCausalLM

    decoder = build(SMALL, 11, 0)
    save(decoder, tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.options == SMALL
    assert all(torch.equal(a, b) for a, b in zip(decoder.parameters(), again.parameters(), strict=True))
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    ids = torch.randint(0, 11, (2, 7))
    torch.testing.assert_close(logits(again, ids), theirs(ids).logits, atol=1e-5, rtol=1e-5)


def test_a_version_of_weights_is_its_content_and_not_its_folder(tmp_path):
    decoder = build(SMALL, 11, 0)
    for name in ("one", "two"):
        save(decoder, tmp_path / name)
    save(build(SMALL, 11, 1), tmp_path / "other")
    one, two, other = (weights_version("policy", tmp_path / name) for name in ("one", "two", "other"))
    assert one.id == two.id != other.id
    assert one.kind == "weights"
    with pytest.raises(InputError, match="not empty"):
        save(decoder, tmp_path / "one")


def test_changed_missing_and_pickled_weights_are_refused(tmp_path):
    version = fresh("policy", tmp_path / "model", options=SMALL, vocab_size=11, seed=0)
    weights = tmp_path / "model" / model.WEIGHTS
    kept = weights.read_bytes()
    weights.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    with pytest.raises(InputError, match="was changed"):
        LocalModels().sampler(version)
    weights.write_bytes(pickle.dumps({"model.norm.weight": [1.0]}))
    with pytest.raises(InputError, match="not a safetensors file"):
        load(tmp_path / "model")
    (tmp_path / "weights.pt").write_bytes(pickle.dumps({}))
    with pytest.raises(InputError, match="pickles"):
        model.load_tensors(tmp_path / "weights.pt")
    weights.unlink()
    with pytest.raises(NotFoundError, match=r"model\.safetensors"):
        LocalModels().decoder(version)


def test_a_configuration_that_does_not_fit_the_weights_is_refused(tmp_path):
    save(build(SMALL, 11, 0), tmp_path / "model")
    path = tmp_path / "model" / model.CONFIG
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "vocab_size": 12}))
    with pytest.raises(InputError, match="embed_tokens"):
        load(tmp_path / "model")
    path.write_text("{}")
    with pytest.raises(InputError, match="does not describe"):
        load(tmp_path / "model")


def test_a_failed_save_leaves_nothing_behind(tmp_path):
    path = tmp_path / "state.safetensors"
    with pytest.raises(Exception):  # noqa: B017, PT011  any failure of the writer
        model.save_tensors({"a": "no tensor"}, path)  # type: ignore[dict-item]
    assert list(tmp_path.iterdir()) == []


def test_without_torch_the_extra_is_named():
    code = """
import sys
sys.modules["torch"] = None
from whet.errors import MissingExtra
try:
    import whet.learn.training
except MissingExtra as error:
    print(error)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "whet[train]" in found.stdout


def test_what_is_no_weights_gets_no_sampler():
    with pytest.raises(InputError, match="of kind prompt"):
        LocalModels().sampler(Version(resource="policy", kind="prompt", content="hello"))


def test_weights_have_the_words_of_those_they_were_trained_from_beside_them(tmp_path):
    words = Vocabulary(["search", "read"])
    start = fresh("policy", tmp_path / "start", options=SMALL, vocab_size=len(words), seed=0)
    words.save(tmp_path / "start" / "vocabulary.json")
    learner = Learner(LocalModels().decoder(start).copy(), OptimOptions())
    version = learner.checkpoint("policy", tmp_path / "trained", start.id, {})
    text = text_of(Path(version.content["path"]))
    assert isinstance(text, WordText)
    assert text.vocabulary == words
    assert version.id == start.id  # words are no part of what the weights are
