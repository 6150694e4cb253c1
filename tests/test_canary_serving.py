"""Who is served a canary: by the gateway and in traced programs, always the same, and recorded with its chance."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from gateway_world import HELLO, TOKEN, World, world
from processes import whet as whet_command
from test_server_serve import serving

import whet
from whet.models.fakes import ScriptedServer
from whet.record.store import Release, Stage, Store
from whet.record.store.releases import PROGRAM
from whet.record.store.trials import TRIALS, Trials, arms_of, drawn, joined_arms
from whet.record.tracing import flush
from whet.record.tracing.dialects import survey
from whet.serve import Role, tokens_of
from whet.types import Bundle, Json, Version


def bundle(**content: Json) -> Bundle:
    return Bundle([Version(resource=name.replace("__", "."), content=text) for name, text in content.items()])


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(":memory:") as opened:
        yield opened


def canary(store: Store, candidate: Bundle, share: float, unit: str = "session") -> Release:
    return store.release(candidate, stage=Stage.CANARY, share=share, unit=unit, unproven=True, new_names=True)


def test_the_draw_is_uniform_salted_and_stays_as_the_share_rises() -> None:
    units = [f"s{number}" for number in range(4_000)]
    served = {share: {unit for unit in units if drawn("one", unit, share)} for share in (0.05, 0.1, 0.5)}
    for share, chosen in served.items():
        assert abs(len(chosen) / 4_000 - share) < 0.03
    assert served[0.05] < served[0.1] < served[0.5]
    other = {unit for unit in units if drawn("two", unit, 0.5)}
    assert abs(len(other & served[0.5]) / 4_000 - 0.25) < 0.03


def test_of_canaries_that_change_one_resource_the_oldest_serves_and_the_others_wait(store: Store) -> None:
    first = canary(store, bundle(prompt="a"), 0.4)
    time.sleep(0.002)  # trials are told apart in time by the millisecond
    second = canary(store, bundle(prompt="b"), 0.3)
    apart = canary(store, bundle(knob=1), 0.2)
    # The oldest is the one that began first, though its newest entry is the last.
    canary(store, bundle(prompt="a"), 0.45)
    trials = Trials(store.on_trial())
    assert trials.waiting == {second.trial: first.trial}
    chosen = [trials.choose(f"r{number}") for number in range(400)]
    assert {frozenset(choice.trials) for choice in chosen} == {frozenset({first.trial, apart.trial})}
    both = [choice.bundle is not None and len(choice.bundle) == 2 for choice in chosen]
    assert both == [
        drawn(first.trial, f"r{number}", 0.45) and drawn(apart.trial, f"r{number}", 0.2)
        for number in range(400)
    ]


def ask(made: World, run: str, **headers: str) -> str:
    with made.openai(run) as client:
        reply = client.chat.completions.create(
            model="scripted",
            messages=HELLO,  # type: ignore[arg-type]
            extra_headers={f"x-whet-{name}": text for name, text in headers.items()},
        )
    return reply.choices[0].message.content or ""


def test_the_gateway_serves_a_session_one_arm_and_records_it(store: Store) -> None:
    store.set_live(bundle(gateway__system_prompt="live"))
    trial = canary(store, bundle(gateway__system_prompt="candidate"), 0.3).trial
    with (
        ScriptedServer(lambda request: request.messages[0]["content"]) as upstream,
        world(upstream, store=store) as made,
    ):
        answers = {f"s{number}": ask(made, f"a{number}", session=f"s{number}") for number in range(20)}
        assert answers == {
            session: "candidate" if drawn(trial, session, 0.3) else "live" for session in answers
        }
        for number in range(0, 20, 4):
            assert ask(made, f"b{number}", session=f"s{number}") == answers[f"s{number}"]
        call = made.call("a3")
        assert call[TRIALS] == {
            trial: {
                "arm": "candidate" if answers["s3"] == "candidate" else "live",
                "share": 0.3,
                "unit": "s3",
            }
        }
        (run,) = whet_runs(store, made, "a3")
        assert dict(arms_of(run)) == call[TRIALS]

        canary(store, bundle(gateway__system_prompt="candidate"), 0.6)
        risen = {session: ask(made, f"c-{session}", session=session) for session in answers}
        assert risen == {
            session: "candidate" if drawn(trial, session, 0.6) else "live" for session in answers
        }
        store.retire(trial, reason="harm")
        assert {ask(made, f"d-{session}", session=session) for session in answers} == {"live"}


def whet_runs(store: Store, made: World, run: str) -> list[whet.Trajectory]:
    made.calls(run)
    return [*survey(list(store.spans.run(run))).trajectories]


def test_a_run_that_the_gateway_has_forgotten_keeps_its_arm(store: Store) -> None:
    trial = canary(store, bundle(gateway__system_prompt="candidate"), 0.5).trial
    run = next(f"r{number}" for number in range(99) if drawn(trial, f"r{number}", 0.5))
    with ScriptedServer(lambda request: request.messages[0]["content"]) as upstream:
        with world(upstream, store=store) as made:
            assert ask(made, run) == "candidate"
            made.calls(run)
        store.retire(trial)
        with world(upstream, store=store) as made:
            assert ask(made, run) == "candidate"
            assert [call[TRIALS][trial]["arm"] for call in made.calls(run)] == ["candidate"] * 2
            assert ask(made, f"{run}-later") == "hello"


def test_a_traced_program_reads_its_arm_and_keeps_it_for_the_call(store: Store) -> None:
    prompt = whet.resource("canaried_prompt", default="live")

    @whet.trace(store)
    def agent(question: str) -> str:
        return f"{prompt} {prompt}"

    def served(person: str) -> str:
        with whet.run(subject=person):
            return agent("hello")

    assert served("ada") == "live live"
    trial = canary(store, bundle(canaried_prompt="candidate"), 0.5, "subject").trial
    people = [f"p{number}" for number in range(30)]
    answers = {person: served(person) for person in people}
    assert answers == {
        person: "candidate candidate" if drawn(trial, person, 0.5) else "live live" for person in people
    }
    assert f"{prompt}" == "live"  # outside of a traced call
    flush()
    runs = {run.subject: run for run in store.trajectories()}
    for person, answer in answers.items():
        arm = arms_of(runs[person])[trial]
        assert isinstance(arm, dict)
        assert (arm["arm"] == "candidate") is answer.startswith("candidate")
        assert (arm["share"], arm["unit"]) == (0.5, person)
    assert not arms_of(runs["ada"])


def test_a_run_that_was_drawn_twice_with_two_answers_is_evidence_for_neither_arm() -> None:
    live, candidate = {"arm": "live", "share": 0.5}, {"arm": "candidate", "share": 0.5}
    assert joined_arms({"t": live}, {"t": candidate})["t"] == {"arm": "mixed", "share": 0.5}
    assert joined_arms({"t": live}, {"t": live, "u": candidate}) == {"t": live, "u": candidate}


def test_runs_of_a_deployed_copy_name_its_bundle_by_their_base_url(store: Store) -> None:
    code = Version(resource="desk.answer", content="def answer(question): ...\n", kind=PROGRAM)
    candidate = Bundle([code])
    store.release(candidate, stage=Stage.CANARY, share=0.5, unit="run", unproven=True, new_names=True)
    store.set_live(bundle(gateway__system_prompt="live"))
    with ScriptedServer(lambda request: "fine") as upstream, world(upstream, store=store) as made:
        said = {"model": "scripted", "messages": HELLO}
        headers = {"x-whet-run": "deployed", "authorization": f"Bearer {TOKEN}"}
        with httpx2.Client(trust_env=False, timeout=90) as client:
            address = f"{made.url}/deployed/{candidate.id}/v1/chat/completions"
            in_run = address.replace("/v1/", f"/run/deployed/{TOKEN}/v1/")
            for path in (address, address.replace("/v1/", f"/{TOKEN}/v1/"), in_run):
                assert client.post(path, json=said, headers=headers).status_code == 200
            assert ask(made, "as it is") == "fine"
            headers["x-whet-run"] = "unknown"
            unknown = client.post(address.replace(candidate.id, "0" * 16), json=said, headers=headers)
            assert unknown.status_code == 404
        served = [call["versions"] for call in made.calls("deployed")]
        prompt = made.call("as it is")["versions"]
        assert served == [{**prompt, "desk.answer": code.id}] * 3
        (run,) = whet_runs(store, made, "deployed")
        assert run.versions["desk.answer"] == code.id


TRACED = """import whet


@whet.trace
def answer(question):
    return question.upper()


with whet.run(subject="ann"):
    answer("where?")
"""


def test_a_deployed_copy_that_calls_no_model_names_its_bundle_in_what_it_traces(tmp_path: Path) -> None:
    code = Version(resource="desk.answer", content="def answer(question): ...\n", kind=PROGRAM)
    prompt = Version(resource="gateway.system_prompt", content="Be brief.")
    with Store(tmp_path / "runs.db") as store:
        candidate = Bundle([code, prompt])
        store.put_bundle(candidate)
    path = tmp_path / "runs.db"
    program = ("--", sys.executable, "-c", TRACED)
    for deployed in ((), ("--deployed", candidate.id)):
        done = whet_command("run", "--store", path, *deployed, *program, folder=tmp_path)
        assert done.returncode == 0, done.stderr
    with serving(path) as (_, url, _):
        token = tokens_of(path)[Role.WRITE]
        done = whet_command("run", "--url", url, "--deployed", candidate.id, *program, WHET_TOKEN=token)
        assert done.returncode == 0, done.stderr
        done = whet_command("run", "--url", url, "--deployed", "0" * 16, *program, WHET_TOKEN=token)
        assert done.returncode == 2
        assert "which --deployed names" in done.stderr
    with Store(path) as store:
        served = [dict(run.versions) for run in store.trajectories()]
    assert served == [{}, {"desk.answer": code.id}, {"desk.answer": code.id}]
