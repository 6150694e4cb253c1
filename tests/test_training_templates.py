"""What was sampled comes back through tokenizer and chat template as it was, or nothing is trained on it."""

import json
import warnings

import pytest
from policy_world import TEMPLATE as CHAT
from policy_world import downloaded

from whet.cli import app
from whet.errors import InputError, TrainingRefused
from whet.learn.training import templates
from whet.learn.training.templates import round_trip
from whet.record.exchange import formats
from whet.types import Outcome, Step, Task, Tokens, Trajectory

TEMPLATE = (
    "{% for message in messages %}[{{ message['role'] }}] {{ message['content'] }} [end] {% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)
STRIPPING = TEMPLATE.replace("message['content']", "message['content'].replace('think', '')")


def tokenizer(template):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["[unk]", "[user]", "[assistant]", "[end]", "hello", "think", "yes", "no"]
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[unk]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return PreTrainedTokenizerFast(
            tokenizer_object=made, unk_token="[unk]", eos_token="[end]", chat_template=template
        )


def test_generated_tokens_survive_a_faithful_template_and_not_one_that_drops_thoughts():
    asked = [{"role": "user", "content": "hello"}]
    answer = [5, 6, 3]  # think yes [end]
    assert round_trip(tokenizer(TEMPLATE), asked, answer).survives
    lost = round_trip(tokenizer(STRIPPING), asked, answer)
    assert not lost.survives
    assert lost.first == 4  # [user] hello [end] [assistant], then the thought
    assert "answer differs" in lost.reason
    with pytest.raises(InputError, match="no chat template"):
        round_trip(tokenizer(None), asked, answer)


def test_what_a_template_will_lose_is_said_before_a_request_comes(tmp_path):
    from policy_world import byte_tokenizer

    faithful = byte_tokenizer(tmp_path / "faithful")
    assert templates.caution(faithful) == ""
    trimming = byte_tokenizer(
        tmp_path / "trimming", CHAT.replace("message.content", "message.content | trim")
    )
    said = templates.caution(trimming)
    assert "does not give back every answer as it was sampled" in said
    assert "mend the template, or have the agent send token ids" in said
    faithful.chat_template = "{{ raise_exception('no') }}"
    assert "chat requests will be refused until the template is mended" in templates.caution(faithful)
    faithful.chat_template = None
    assert "give the folder a chat_template.jinja" in templates.caution(faithful)


def answers(folder, *texts):
    """Trajectories in which the model of a folder gave these answers."""
    tokenizer = templates.tokenizer_of(folder)
    assert tokenizer is not None

    def one(number, text):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        tokens = Tokens((1, 2), (*ids, tokenizer.eos_token_id), (-0.5,) * (len(ids) + 1))
        step = Step(observation="?", action=text, reward=1.0, kind="llm", tokens=tokens)
        return Trajectory(task=Task(id=str(number)), steps=[step], outcome=Outcome.SUCCESS)

    return [one(number, text) for number, text in enumerate(texts)]


def lower_cased(folder):
    """Have a folder's tokenizer read every text in lower case."""
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"normalizer": {"type": "Lowercase"}}))
    return folder


def test_training_refuses_a_model_whose_tokenizer_or_template_changes_what_was_sampled(tmp_path, capsys):
    sound = downloaded(tmp_path / "sound")
    recorded = answers(sound, *["Yes, abc", "No: <tool_call> B </tool_call>"] * 8)
    formats.write_trajectories(tmp_path / "data.jsonl", recorded)

    def train(folder, *more):
        words = ["sft", "--data", tmp_path / "data.jsonl", "--epochs", 1, "--model", folder, *more]
        output = ["--output", tmp_path / f"out-{folder.name}"]
        return app([str(word) for word in ("train", *words, *output)], result_action="return_value")

    assert train(sound) == 0
    lossy = lower_cased(downloaded(tmp_path / "lossy"))
    with pytest.raises(TrainingRefused, match=r"16 of 16 recorded answers.*'Yes, abc' is read as 'yes, abc'"):
        train(lossy)
    assert not (tmp_path / "out-lossy").exists(), "refused before anything was begun"
    trimming = downloaded(
        tmp_path / "trimming", template=CHAT.replace("message.content", "message.content | replace(',', '')")
    )
    with pytest.raises(TrainingRefused, match=r"8 of 16 recorded answers.*the answer differs.*mend"):
        train(trimming)
    assert train(trimming, "--ids-only") == 0
    capsys.readouterr()


def test_a_few_answers_cut_within_a_character_and_models_without_a_tokenizer_are_trained_on(tmp_path):
    folder = downloaded(tmp_path / "m")
    templates.require(folder, answers(folder, *["fine"] * 19, "half a �"))
    for name in templates.FILES:
        (folder / name).unlink()
    assert templates.tokenizer_of(folder) is None
    templates.require(folder, [])
