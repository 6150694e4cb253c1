"""What goes on trial runs in the shadow first: without any effect, and what fails or costs far more stops there."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

from processes import whet
from test_autopilot_journey import Clock, Shop, _steps, _trial

from whet.autopilot.asking import waiting
from whet.autopilot.journal import read
from whet.models.base import Completion, ModelRequest, ToolCall
from whet.models.fakes import ScriptedServer
from whet.prove.shadow import findings_of, shadow_pairs
from whet.record.store import Stage, Store
from whet.record.store.issues import AgentIssue, Component
from whet.record.store.releases import PROGRAM
from whet.serve.trials import TrialWatcher
from whet.types import Bundle, Version

CLERK = '''"""A clerk who sends what people ask for."""

import json
import os
import sys
import urllib.request
from pathlib import Path
from typing import Any

PROMPT = "Send it once."
ROUNDS = 3


def ask(messages):
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "scripted", "messages": messages}).encode(),
        {"content-type": "application/json", "authorization": "Bearer none"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)["choices"][0]["message"]


def send(text):
    """Sends for good."""
    with open(os.environ["SENT"], "a") as sent:
        sent.write(text + "\\n")
    return {"sent": text}


def answer(question):
    messages = [{"role": "system", "content": PROMPT}, {"role": "user", "content": question}]
    for _ in range(ROUNDS):
        message = ask(messages)
        if not message.get("tool_calls"):
            break
        messages.append(message)
        for call in message["tool_calls"]:
            result = globals()[call["function"]["name"]](**json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": json.dumps(result)})
    return message.get("content") or ""


if __name__ == "__main__":
    print(answer(sys.argv[1]))
'''


WRITES = """def send(text):
    try:
        open("/root/x", "w")
    except OSError as error:
        return {"sent": f"{text} {type(error).__name__}"}
"""


def script(request: ModelRequest) -> Completion:
    """A model that sends what is asked for, and then says what was sent."""
    prompt, question = (str(message["content"]) for message in request.messages[:2])
    results = [str(message["content"]) for message in request.messages if message["role"] == "tool"]
    if len(results) < (6 if "often" in prompt else 1):
        text = "what nobody asked for" if "wild" in prompt else question
        return Completion(
            text="", tool_calls=[ToolCall(name="send", arguments=json.dumps({"text": text}), id="c1")]
        )
    return Completion(text=f"It says {results[-1]}.")


class Clerk:
    """The clerk's folder, a record of four runs, and the file that shows what was really sent."""

    def __init__(self, folder: Path, upstream: ScriptedServer) -> None:
        self.folder, self.store, self.sent = folder / "agent", folder / "runs.db", folder / "sent.txt"
        self.environment = {"OPENAI_BASE_URL": upstream.base_url, "SENT": str(self.sent)}
        self.folder.mkdir()
        (self.folder / "clerk.py").write_text(CLERK)
        for number in range(4):
            ran = whet(
                "run", "--store", self.store, "--", "python", self.folder / "clerk.py", f"parcel {number}",
                folder=folder, **self.environment,
            )  # fmt: skip
            assert ran.returncode == 0, ran.stderr
        assert self.sent.read_text().splitlines() == [f"parcel {number}" for number in range(4)]

    def shadow(self, changes: dict[str, str], name: str, content: str) -> tuple[Counter[str], str, list[str]]:
        """Replay the runs under a changed folder: the counts, what is said, and the shadows' answers."""
        return self.shadow_of(changes, {name: content})

    def shadow_of(
        self, changes: dict[str, str], pieces: dict[str, str]
    ) -> tuple[Counter[str], str, list[str]]:
        """The same of several pieces that changed."""
        candidate = shutil.copytree(self.folder, self.folder.with_name("candidate"), dirs_exist_ok=True)
        text = CLERK
        for old, new in changes.items():
            assert text.count(old) == 1
            text = text.replace(old, new)
        (candidate / "clerk.py").write_text(text)
        with Store(self.store) as store:
            bundle = Bundle(
                [
                    Version(resource=f"clerk.{each}", content=content, kind=PROGRAM)
                    for each, content in pieces.items()
                ]
            )
            trial = store.release(bundle, stage=Stage.SHADOW, new_names=True).trial
        words = ("replay", "clerk:answer", "--store", self.store, "--trial", trial, "--folder", candidate)
        environment = self.environment
        done = whet(*words, "--control", self.folder, "--json", folder=self.folder, **environment)
        assert done.returncode == 0, done.stderr
        with Store(self.store) as store:
            pairs = shadow_pairs(store, trial)
            findings = findings_of(pairs)
            store.retire(trial)
        answers = sorted(shadow.output_text for _, shadow in pairs)
        return Counter(json.loads(done.stdout)), findings.harm or findings.sentence, answers


def test_a_folder_is_shadowed_without_any_effect_and_without_a_mark(tmp_path: Path) -> None:
    with ScriptedServer(script) as upstream:
        clerk = Clerk(tmp_path, upstream)
        sent = clerk.sent.read_bytes()
        as_before = [f'It says {{"sent": "parcel {number}"}}.' for number in range(4)]
        counts, said, answers = clerk.shadow({"once": "once, friendly"}, "PROMPT", "Send it once, friendly.")
        assert (counts, answers) == ({"paired": 4}, as_before)
        assert "0 failed where what is live did not" in said
        assert "1.00 times as many model calls" in said
        # A call that was never recorded is answered by nobody.
        counts, said, answers = clerk.shadow({"once": "wild"}, "PROMPT", "Send it wild.")
        assert answers == []
        assert counts == {'send({"text":"what nobody asked for"})': 4}
        # Its own code fails, and writes where nothing is kept.
        wrong = {
            "    messages = [": '    open("/var/tmp/whet-shadow-test", "w").write(missing)\n    messages = ['
        }
        counts, said, _ = clerk.shadow(wrong, "PROMPT", "x")
        assert "it fails in 4 of 4 shadows where what is live does not: NameError" in said
        # It goes on sending, which the record answers, and asks the model again and again.
        often = {"once": "often", "ROUNDS = 3": "ROUNDS = 9"}
        counts, said, _ = clerk.shadow(often, "PROMPT", "Send it often.")
        assert "times as many model calls as what is live" in said
        # A tool that a proposer wrote runs in the sandbox, with no file and no network.
        old = CLERK[CLERK.index("def send(text)") : CLERK.index("def answer")]
        counts, said, answers = clerk.shadow({old: f"{WRITES}\n\n"}, "send", WRITES)
        assert counts == {"paired": 4}
        assert answers[0].startswith('It says {"sent": "parcel 0 ')
        assert clerk.sent.read_bytes() == sent, "nothing was sent"
        assert not os.path.exists("/var/tmp/whet-shadow-test")


def test_several_functions_that_a_proposer_wrote_answer_beside_each_other(tmp_path: Path) -> None:
    pieces = {f"step{n}": f"def step{n}(text):\n    return text + '{n}'\n" for n in range(4)}
    end = 'if __name__ == "__main__":'
    steps = "".join(f"{text}\n\n" for text in pieces.values())
    changes = {
        'return message.get("content") or ""': 'return step0(step1(step2(step3(message.get("content") or ""))))',
        end: f"{steps}{end}",
    }
    with ScriptedServer(script) as upstream:
        counts, _, answers = Clerk(tmp_path, upstream).shadow_of(changes, pieces)
    assert counts == {"paired": 4}
    assert answers[0] == 'It says {"sent": "parcel 0"}.3210'


def test_an_agent_that_fails_anyway_is_not_held_against_the_candidate(tmp_path: Path) -> None:
    with ScriptedServer(script) as upstream:
        clerk = Clerk(tmp_path, upstream)
        (clerk.folder / "clerk.py").write_text(
            CLERK.replace("    messages = [", "    missing\n    messages = [")
        )
        counts, said, _ = clerk.shadow({"    messages = [": "    missing\n    messages = ["}, "PROMPT", "x")
        assert counts == {"the agent as it is does the same when it is replayed": 4}
        assert said.startswith("0 shadows")


STYLE = 'STYLE = {"delivery": "plain"}\n'
"""A second table of the desk, which every answer looks into."""


def to_try(shop: Shop, clock: Clock, **contents: str) -> None:
    """A repair that waits for its trial, for each subject: of the warranty's units, and of the delivery's style."""
    store, source = shop.store, shop.folder / "desk.py"
    looked = source.read_text().replace("    return", '    STYLE.get(subject, "plain").lower()\n    return')
    source.write_text(looked.replace("UNITS =", f"{STYLE}UNITS ="))
    shop.ask(72, at=1_000.0)
    _steps(shop, clock, most=3)
    work = store.state("autopilot/work/issue-warranty")
    assert work["stage"] == "to try"
    start = store.bundle(work["start"])
    start = start.put(Version(resource="desk.STYLE", content=STYLE, kind=PROGRAM))
    store.put_bundle(start)
    for subject, content in contents.items():
        name, traffic = {"warranty": ("UNITS", 0.75), "delivery": ("STYLE", 0.25)}[subject]
        piece = start[f"desk.{name}"]
        bundle = start.put(Version(resource=piece.resource, content=content, kind=PROGRAM, parent=piece.id))
        store.put_bundle(bundle)
        shown = [run.id for run in store.trajectories(served=True) if subject in run.task.instruction]
        if subject != "warranty":
            issue = AgentIssue(
                id=f"issue-{subject}", name=subject, component=Component.ROUTE, runs=shown, affected=9
            )
            store.issues.put(issue)
        own = {"shown": shown, "traffic": traffic, "bundle": bundle.id, "start": start.id}
        pieces = [[piece.resource, "desk.py", name, "comment"]]
        store.put_state(f"autopilot/work/issue-{subject}", {**work, **own, "pieces": pieces})


def work_on(shop: Shop, subject: str) -> dict[str, Any]:
    return dict(shop.store.state(f"autopilot/work/issue-{subject}"))


BETTER = 'UNITS = {"warranty": "years", "age": "years"}\n'


def test_what_fails_in_the_shadow_is_served_to_nobody_and_is_not_proposed_again(tmp_path: Path) -> None:
    shop, clock = Shop(tmp_path), Clock()
    to_try(shop, clock, warranty="UNITS = 3\n")
    _steps(shop, clock, most=1)
    rows = [row for row in read(shop.store) if row.step == "shadow"]
    assert "30 failed where what is live did not" in rows[0].sentence
    assert "it fails in 12 of 12 shadows where what is live does not: AttributeError" in rows[1].sentence
    work = work_on(shop, "warranty")
    assert (work["stage"], work["attempt"], len(work["tried"])) == ("found", 1, 1)
    issue = shop.store.issues.get("issue-warranty")
    assert (issue.component, issue.shown, [*issue.because]) == (Component.ROUTE, "", [])
    assert shop.store.on_trial() == []
    assert [entry.stage for entry in shop.store.release_log()] == [Stage.SHADOW, Stage.RETIRED]


def test_of_two_repairs_only_the_one_that_fails_loses_its_turn(tmp_path: Path) -> None:
    shop, clock = Shop(tmp_path), Clock()
    # It fails on deliveries alone.
    to_try(shop, clock, warranty=BETTER, delivery='STYLE = {"delivery": 3}\n')
    _steps(shop, clock, most=5)
    assert work_on(shop, "warranty")["stage"] == "on trial"
    assert [work_on(shop, subject)["attempt"] for subject in ("warranty", "delivery")] == [0, 1]
    (canary,) = shop.store.on_trial()
    assert canary.stage is Stage.CANARY
    assert set(canary.bundle) == {"desk.UNITS"}
    log = [entry for entry in shop.store.release_log() if entry.trial == canary.trial]
    assert [entry.stage for entry in log] == [Stage.SHADOW, Stage.CANARY], "one trial, the shadow first"


def test_where_all_fail_together_each_half_is_shadowed_without_the_other(tmp_path: Path) -> None:
    shop, clock = Shop(tmp_path), Clock()
    # It fails on everything, so the other's part shows it as well.
    to_try(shop, clock, warranty=BETTER, delivery="STYLE = 3\n")
    _steps(shop, clock, most=6)
    stages = {subject: work_on(shop, subject)["stage"] for subject in ("warranty", "delivery")}
    assert stages == {"warranty": "on trial", "delivery": "to try"}, "the other half waits for its turn"
    told = [row.sentence for row in read(shop.store) if row.issue == "issue-warranty"]
    assert any("one of 2 repairs did harm" in sentence for sentence in told)


KINDER = STYLE.replace("plain", "Plain")


def test_who_waits_is_not_kept_waiting_and_what_people_said_is_kept(tmp_path: Path) -> None:
    shop, clock = Shop(tmp_path), Clock()
    to_try(shop, clock, warranty=BETTER, delivery=KINDER)
    late = work_on(shop, "delivery")
    shop.store.put_state("autopilot/work/issue-delivery", {**late, "stage": "given up"})
    _steps(shop, clock)
    assert (work_on(shop, "warranty")["stage"], work_on(shop, "warranty")["trial"]) == ("on trial", 1)
    shop.ask(16, at=clock.now, trial=_trial(shop))
    shop.store.put_state("autopilot/work/issue-delivery", late)
    _steps(shop, clock)
    for subject in ("warranty", "delivery"):
        assert (work_on(shop, subject)["stage"], work_on(shop, subject)["trial"]) == ("on trial", 2)
    assert [canary.share for canary in shop.store.on_trial()] == [0.5]
    shop.ask(72, at=clock.now, trial=_trial(shop))
    clock.now += 1
    _steps(shop, clock, most=1)
    (proven,) = [row for row in read(shop.store) if "proven on real traffic" in row.sentence]
    assert proven.issue == "issue-warranty"
    assert work_on(shop, "warranty")["pairs"] == (16 + 72) * 0.75 / 2


def test_searches_leave_the_calls_for_the_trial_of_what_waits(tmp_path: Path) -> None:
    shop, clock = Shop(tmp_path), Clock()
    to_try(shop, clock, warranty=BETTER, delivery=KINDER)
    shop.store.put_state("autopilot/work/issue-delivery", None)
    pilot = shop.pilot(clock=clock)
    left = pilot.night.meter.left("rollouts")
    assert left is not None
    pilot.night.meter.reserve(rollouts=int(left) - 150)
    _steps(shop, clock)
    assert work_on(shop, "warranty")["stage"] == "on trial"
    assert not [row for row in read(shop.store) if row.issue == "issue-delivery"]


def test_without_a_shadow_a_person_has_to_say(tmp_path: Path) -> None:
    shop, clock = Shop(tmp_path), Clock()
    to_try(shop, clock, warranty=BETTER)
    desk = shop.folder / "desk.py"
    desk.write_text("import nothing_of_this_name\n" + desk.read_text())
    _steps(shop, clock, most=4)
    assert waiting(shop.store) == ["trial-1"]
    (asked,) = [row.sentence for row in read(shop.store) if row.step == "ask"]
    assert "nothing of it was seen in the shadow: the agent as it is does the same" in asked
    assert shop.store.on_trial()[0].stage is Stage.SHADOW


def taken_back_by_the_server(shop: Shop, clock: Clock, *subjects: str) -> None:
    """A trial of a repair of each of these subjects, on which people dislike what they hear of the warranty."""
    store = shop.store
    clock.now = time.time() - 100
    shop.ask(72, at=1_000.0)
    _steps(shop, clock)
    trial, work = store.state("autopilot/trial"), work_on(shop, "warranty")
    names = []
    for number, subject in enumerate(subjects):
        names.append(f"issue-{subject}{number}")
        shown = [run.id for run in store.trajectories(served=True) if subject in run.task.instruction]
        share = {"warranty": 0.75, "delivery": 0.25}[subject]
        issue = AgentIssue(id=names[-1], name=names[-1], component=Component.ROUTE, runs=shown, affected=9)
        store.issues.put(issue)
        store.put_state(f"autopilot/work/{names[-1]}", {**work, "shown": shown, "traffic": share})
    store.put_state("autopilot/work/issue-warranty", {**work, "stage": "given up"})
    store.put_state("autopilot/trial", {**trial, "issues": names})
    shop.spiteful = True
    shop.ask(140, at=time.time(), trial=_trial(shop))
    TrialWatcher(store).step(time.time() + 10)
    assert "does harm" in store.release_log(last=1)[0].reason
    clock.now = time.time() + 10
    _steps(shop, clock, most=1)


def test_of_a_trial_that_the_server_takes_back_only_the_part_that_did_harm_loses_its_turn(
    tmp_path: Path,
) -> None:
    shop, clock = Shop(tmp_path), Clock()
    taken_back_by_the_server(shop, clock, "warranty", "delivery")
    blamed, innocent = work_on(shop, "warranty0"), work_on(shop, "delivery1")
    assert (blamed["stage"], blamed["attempt"]) == ("found", 1)
    assert (innocent["stage"], innocent["attempt"]) == ("to try", 0)
    assert not innocent.get("apart")


def test_where_no_part_shows_the_harm_each_half_is_tried_without_the_other(tmp_path: Path) -> None:
    shop, clock = Shop(tmp_path), Clock()
    taken_back_by_the_server(shop, clock, "delivery", "delivery")
    works = [work_on(shop, "delivery0"), work_on(shop, "delivery1")]
    assert [(work["stage"], work["attempt"], work["apart"]) for work in works] == [
        ("to try", 0, "1.0"),
        ("to try", 0, "1.1"),
    ]
    _steps(shop, clock, most=4)
    assert [work_on(shop, f"delivery{number}")["stage"] for number in (0, 1)] == ["on trial", "to try"]


def test_a_trial_that_a_person_takes_back_is_meant_whole(tmp_path: Path) -> None:
    shop, clock = Shop(tmp_path), Clock()
    to_try(shop, clock, warranty=BETTER, delivery='STYLE = {"delivery": "friendly"}\n')
    _steps(shop, clock, most=4)
    (canary,) = shop.store.on_trial()
    assert canary.stage is Stage.CANARY
    shop.store.retire(canary.trial, reason="I do not like it")
    _steps(shop, clock, most=1)
    assert [work_on(shop, subject)["attempt"] for subject in ("warranty", "delivery")] == [1, 1]
