"""`whet serve-policy` as a user starts it: a process, its first words, an answer, a release taken up, Ctrl-C."""

import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace

import openai
import pytest
from policy_world import TEMPLATE, downloaded
from processes import until
from training_toys import SMALL, VOCABULARY

from whet.cli import app
from whet.errors import InputError, NotFoundError
from whet.learn.training import model
from whet.learn.training.local import fresh
from whet.record.store import Store, write_bundle
from whet.types import Bundle


def embedded(folder, seed):
    """A policy in a folder, with its words, and its Version."""
    version = fresh("policy", folder, options=SMALL, vocab_size=len(VOCABULARY), seed=seed)
    VOCABULARY.save(folder / "vocabulary.json")
    return version


@contextmanager
def started(*words):
    """The process, its URL and its token."""
    command = [
        sys.executable,
        "-m",
        "whet",
        "serve-policy",
        "--port",
        "0",
        "--threads",
        "1",
        *map(str, words),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        first, second = process.stdout.readline(), process.stdout.readline()
        url, token = re.search(r"http://\S+/v1", first), re.search(r"token: (\S+)", second)
        assert url, first + process.stderr.read() if process.poll() is not None else first
        yield process, url.group(), token.group(1)
    finally:
        process.kill()
        process.communicate()


def answer(url, token, **options):
    with openai.OpenAI(
        base_url=url, api_key=token, http_client=openai.DefaultHttpxClient(verify=False), max_retries=0
    ) as client:
        given = {"model": "policy", "seed": 1, "max_tokens": 8, **options}
        return client.chat.completions.create(messages=[{"role": "user", "content": "3"}], **given)


def test_a_template_that_loses_what_is_said_is_told_of_at_the_start(tmp_path):
    trimming = TEMPLATE.replace("message.content", "message.content | trim")
    with started("--model", downloaded(tmp_path / "m", template=trimming)) as (process, _, _):
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=300)
        assert "note: this model's chat template does not give back every answer as it was sampled" in err
        assert "one sequence for each call" in err


def test_a_folder_is_served_until_ctrl_c(tmp_path):
    embedded(tmp_path / "w", 0)
    with started("--model", tmp_path / "w") as (process, url, token):
        found = answer(url, token)
        assert found.choices[0].message.content is not None
        assert found.model_extra["policy_version"] == model.sha256(tmp_path / "w" / "model.safetensors")[:16]
        with pytest.raises(openai.AuthenticationError):
            answer(url, "whet-wrong")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, out + err


def test_a_release_in_the_store_is_taken_up_while_serving(tmp_path):
    first, second = embedded(tmp_path / "one", 0), embedded(tmp_path / "two", 1)
    with Store(tmp_path / "s.db") as store:
        store.set_live(Bundle([first]))
        with started("--store", tmp_path / "s.db", "--vocabulary", tmp_path / "one" / "vocabulary.json") as (
            process,
            url,
            token,
        ):
            before = answer(url, token, extra_body={"return_token_ids": True})
            assert before.system_fingerprint == first.id
            store.set_live(Bundle([second]))
            until(lambda: answer(url, token).system_fingerprint == second.id, "the release was not taken up")
            after = answer(url, token)
            store.set_live(Bundle([fresh("policy", tmp_path / "gone", options=SMALL, vocab_size=9, seed=2)]))
            (tmp_path / "gone" / "model.safetensors").unlink()
            assert "what was served stays" in process.stderr.readline()
            assert answer(url, token).system_fingerprint == second.id
    assert after.model_extra["policy_version"] == "0"


@pytest.mark.parametrize("base", ["the record says what it was", "--model names it"])
def test_released_weights_are_rolled_back_to_the_model_as_it_came(tmp_path, base):
    came = embedded(tmp_path / "one", 0)
    learned, store = replace(embedded(tmp_path / "two", 1), parent=came.id), str(tmp_path / "s.db")
    write_bundle(tmp_path / "bundle.json", Bundle([learned]), baseline=Bundle([came]))

    def shell(*words):
        assert app([*map(str, words), "--store", store], result_action="return_value") == 0

    shell("release", tmp_path / "bundle.json", "--unproven")
    words = ["--store", store, "--vocabulary", tmp_path / "one" / "vocabulary.json"]
    words += ["--model", tmp_path / "one"] if base.startswith("--model") else []
    as_it_came = came.content["sha256"][:16] if base.startswith("--model") else "0"
    with started(*words) as (_, url, token):

        def served(version, policy_version):
            def told():
                found = answer(url, token)
                return found.system_fingerprint, found.model_extra["policy_version"]

            until(lambda: told() == (version, policy_version), f"{version} is not served")

        served(learned.id, "0")
        shell("rollback")
        served(as_it_came if base.startswith("--model") else came.id, as_it_came)
        shell("release", tmp_path / "bundle.json", "--unproven")
        served(learned.id, "0")


def test_what_cannot_be_served_is_said_before_anything_is_loaded(tmp_path):
    def serve(*words):
        return app(["serve-policy", *map(str, words)], result_action="return_value")

    with pytest.raises(InputError, match="as --model DIR, as --store FILE"):
        serve()
    with pytest.raises(NotFoundError, match="no store"):
        serve("--store", tmp_path / "none.db")
    with pytest.raises(NotFoundError, match="no folder"):
        serve("--model", tmp_path / "none")
    pickled = tmp_path / "pickled"
    pickled.mkdir()
    with pytest.raises(NotFoundError, match="is it the folder of a model"):
        serve("--model", pickled)
    (pickled / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch /tmp/owned'\ntR.")
    with pytest.raises(InputError, match=r"pytorch_model\.bin, a pickle"):
        serve("--model", pickled)
    with Store(tmp_path / "s.db"), pytest.raises(NotFoundError, match="nothing named 'policy' is live"):
        serve("--store", tmp_path / "s.db")
    embedded(tmp_path / "w", 0)
    with pytest.raises(InputError, match="on the processor"):
        serve("--model", tmp_path / "w", "--device", "cuda")
