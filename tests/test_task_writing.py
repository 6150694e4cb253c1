"""Tasks that nobody asked yet: kept only with evidence, and how they differ from real ones is told."""

import asyncio
import json
import random
import re

import pytest
from commands import answered, command

from whet.errors import InputError
from whet.learn.datasets.bias import generator_bias
from whet.learn.datasets.documents import Document, DocumentIndex, pieces
from whet.learn.datasets.varied import vary
from whet.learn.datasets.written import Draft, QuestionFilter, unrealistic, write_questions
from whet.models import ScriptedModel
from whet.models.fakes import ScriptedServer
from whet.record.store import Store
from whet.record.tasks import from_jsonl, to_jsonl
from whet.types import Outcome, Split, Task, Trajectory

PLACES = [
    "Lisbon",
    "Porto",
    "Madrid",
    "Seville",
    "Lyon",
    "Nantes",
    "Bremen",
    "Essen",
    "Turin",
    "Genoa",
    "Leeds",
    "York",
]
FENCED = re.compile(r"<(data-\w+)>\n(.*?)\n</\1>", re.DOTALL)


def offices() -> list[Document]:
    return [
        Document(
            f"office-{place.lower()}",
            f"The office in {place} moved last spring. Its manager is M. {place[::-1].title()}. "
            f"Call the desk on 555-01{number:02d} before noon.",
            f"Office {place}",
            f"country {number // 2}",
        )
        for number, place in enumerate(PLACES)
    ]


def draft(place: str = "Lisbon", **changes: object) -> Draft:
    number = PLACES.index(place)
    fields = {
        "document": f"office-{place.lower()}",
        "question": f"Which number do I call for the {place} office?",
        "answer": f"555-01{number:02d}",
        "passage": f"Call the desk on 555-01{number:02d} before noon.",
        **changes,
    }
    return Draft(**fields)  # type: ignore[arg-type]


def shown(prompt: str, place: int = 0) -> list[dict[str, str]]:
    return json.loads(FENCED.findall(prompt)[place][1])


def reads(request) -> str:
    """A reader: the telephone numbers of the documents that name a place of the question."""
    question = json.loads(FENCED.findall(request.text)[1][1])
    named = [place for place in PLACES if place in question]
    answers = [
        {"document": one["id"], "answer": number, "passage": f"Call the desk on {number} before noon."}
        for one in shown(request.text)
        if any(place in one["text"] for place in named) or not named
        for number in re.findall(r"555-\d+", one["text"])
    ]
    return json.dumps({"answers": answers})


def why(*drafts: Draft, reader=reads, documents=None) -> list[str]:
    documents = documents or offices()
    asked = QuestionFilter(documents, ScriptedModel(reader) if reader else None)
    return asyncio.run(asked.reasons(drafts, {document.id: document for document in documents}))


def test_a_question_with_evidence_that_a_reader_confirms_stands():
    assert why(draft()) == [""]


def test_what_has_no_evidence_is_refused_with_the_reason():
    reasons = why(
        draft(document="office-paris"),
        draft(passage="Call the desk on 555-0100 before two."),
        draft(answer="555-9999"),
        draft(passage="Its manager is M. Nobsil.", answer="M. Nobsil"),  # the answer to another question
        draft(document="office-porto", passage=draft("Porto").passage, answer=draft("Porto").answer),
        draft(question="Which number do I call for the desk before noon?"),
    )
    assert reasons[0] == "its document was not among those shown"
    assert reasons[1] == "its passage does not stand in the document"
    assert reasons[2] == "its answer does not stand in the passage"
    assert reasons[3] == "a reader finds another answer"
    assert reasons[4] == "too many other documents fit the question as well"
    assert reasons[5] == "too many other documents fit the question as well"


def test_two_documents_that_answer_differently_and_an_unreadable_reader_are_refused():
    two = [*offices(), Document("note", "The Lisbon office: Call the desk on 555-7777 before noon.", "", "x")]
    assert why(draft(), documents=two) == ["a reader finds several answers"]
    assert why(draft(), reader=lambda _: "I cannot say.") == ["the reader's answer cannot be read"]
    assert why(draft(), reader=lambda _: '{"answers": []}') == ["a reader finds no answer in the documents"]
    invented = json.dumps({"answers": [{"answer": "555-0100", "passage": "555-0100 it is"}]})
    assert why(draft(), reader=lambda _: invented) == ["a reader finds no answer in the documents"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"question": "Which number does this e-mail give for Lisbon?"}, "points at a document"),
        ({"question": "According to the document, whom do I call in Lisbon?"}, "points at a document"),
        ({"question": "Is 555-0100 what I call for the Lisbon office?"}, "says its own answer"),
        ({"question": "Lisbon number?"}, "fewer than"),
        ({"realistic": 0.2}, "its author thinks"),
        (
            {
                "question": "Is it so: its quiet old desk in Lisbon stays open every day until when?",
                "passage": "its quiet old desk in Lisbon stays open every day until one sharp",
                "answer": "one sharp",
            },
            "repeats its passage",
        ),
    ],
)
def test_what_nobody_would_ask_is_refused(changes, reason):
    assert reason in unrealistic(draft(**changes))
    assert not unrealistic(draft())
    assert not unrealistic(draft(question='Which number is in the e-mail "Office Lisbon" that Ann sent?'))


def writer(drafts: dict[str, Draft]):
    def write(request) -> str:
        own = [drafts[one["id"]] for one in shown(request.text) if one["id"] in drafts]
        return json.dumps(
            {"questions": [{name: getattr(one, name) for name in one.__struct_fields__} for one in own]}
        )

    return write


def test_written_questions_carry_evidence_and_origin_and_are_no_more_than_there_is_evidence_for():
    drafts = {one.document: one for one in map(draft, PLACES)}
    drafts["office-york"] = draft("York", answer="555-9999")
    tasks, account = asyncio.run(
        write_questions(offices(), 50, writer=ScriptedModel(writer(drafts)), reader=ScriptedModel(reads))
    )
    assert len(tasks) == account.kept == 11
    assert account.refused == {"its answer does not stand in the passage": 1}
    assert account.why == "11 of 50: the documents are used up"
    task = next(task for task in tasks if "Porto" in task.instruction)
    assert (task.answer, task.group) == ("555-0101", "country 0")
    assert task.meta["evidence"] == {"document": "office-porto", "passage": draft("Porto").passage}
    assert task.meta["provenance"]["how"] == "written"
    assert account.usage.calls == 0 or account.usage.calls == 1 + 11


def test_what_a_writer_garbles_is_counted_and_costs_nothing_else():
    tasks, account = asyncio.run(write_questions(offices(), 5, writer=ScriptedModel("no idea")))
    assert not tasks
    assert account.refused["answers of the writer that cannot be read"] == 1
    with pytest.raises(InputError, match="at least one"):
        asyncio.run(write_questions([], 5, writer=ScriptedModel("")))
    with pytest.raises(InputError, match="2 documents"):
        asyncio.run(write_questions([offices()[0]] * 2, 5, writer=ScriptedModel("")))


def test_documents_like_what_failed_are_written_from_first_and_told_to_the_writer():
    many = [Document(f"d{number}", f"Notes of meeting {number}", "", f"d{number}") for number in range(60)]
    asked = ScriptedModel('{"questions": []}')
    seeds = ["Which number do I call for the Turin office?", "Who manages the Genoa office?"]
    asyncio.run(write_questions([*many, *offices()], 5, writer=asked, seeds=seeds, batches=1))
    (call,) = asked.calls
    assert "Turin office" in call.text.rpartition("answered badly")[2]
    assert {"office-turin", "office-genoa"} <= {one["id"] for one in shown(call.text)}


def test_a_long_document_is_shown_in_pieces_none_of_which_is_lost():
    long = Document(
        "manual", "\n\n".join(f"Chapter {number}. " + "word " * 200 for number in range(12)), "Manual", "g"
    )
    parts = pieces(long)
    assert len(parts) > 2
    assert all(len(part.shown) <= 4_000 and part.group == "g" for part in parts)
    assert "".join("".join(part.text.split()) for part in parts) == "".join(long.text.split())
    assert pieces(offices()[0]) == [offices()[0]]
    fits = DocumentIndex(offices()).fitting("Turin manager")
    assert max(fits, key=fits.__getitem__) == PLACES.index("Turin")


PARENTS = [
    Task(
        id=f"t{number}",
        instruction=f'Please cancel order {number}7 of Ann Lee and refund "blue lamp".',
        answer="done",
        group=f"g{number}",
        split=Split.TRAIN,
        meta={"failed": number % 3, "judged": 3, "runs": 3},
    )
    for number in range(12)
]


def rewrite(spoil: str = ""):
    def write(request) -> str:
        texts = []
        for one in shown(request.text):
            order = re.findall(r"\d+", one["text"])[0]
            text = f'Hi, Ann Lee here no longer wants {order}: undo the order, and give the money for "blue lamp" back.'
            texts.append({"of": one["id"], "text": text.replace(order, order + spoil) if spoil else text})
        return json.dumps({"requests": texts})

    return write


def test_a_variation_keeps_answer_group_and_side_and_loses_what_was_true_of_its_parent_alone():
    tasks, account = asyncio.run(
        vary(PARENTS, 6, writer=ScriptedModel(rewrite()), judge=ScriptedModel("SAME"))
    )
    assert len(tasks) == account.kept == 6
    parents = {task.id: task for task in PARENTS}
    for task in tasks:
        parent = parents[task.meta["provenance"]["of"]]
        assert (task.answer, task.group, task.split) == (parent.answer, parent.group, Split.TRAIN)
        assert task.id != parent.id
        assert "failed" not in task.meta
    assert (
        sum(parents[task.meta["provenance"]["of"]].meta["failed"] == 2 for task in tasks) == 4
    )  # all that failed most


def repeat(more: str):
    return lambda request: json.dumps(
        {"requests": [{"of": one["id"], "text": one["text"] + more} for one in shown(request.text)]}
    )


@pytest.mark.parametrize(
    ("write", "verdict", "reason"),
    [
        (rewrite("0"), "SAME", "loses a number, a name or a quotation"),
        (rewrite(), "DIFFERENT", "a judge does not take it for the same request"),
        (rewrite(), "well", "a judge does not take it for the same request"),
        (repeat(""), "SAME", "nearly repeats"),
        (repeat(" Ask Bob."), "SAME", "adds a"),
        (lambda r: json.dumps({"requests": [{"of": "x", "text": "y"}]}), "SAME", "of no task"),
        (lambda r: "what?", "SAME", "cannot be read"),
    ],
)  # fmt: skip
def test_a_variation_that_is_another_request_is_refused(write, verdict, reason):
    tasks, account = asyncio.run(vary(PARENTS, 3, writer=ScriptedModel(write), judge=ScriptedModel(verdict)))
    assert not tasks
    assert any(reason in why for why in account.refused), account.refused


def test_what_cannot_be_checked_is_not_varied():
    with pytest.raises(InputError, match="cannot be checked"):
        asyncio.run(vary([Task(instruction="Tell me a story.")], 3, writer=ScriptedModel("")))


def questions(count: int, seed: int) -> list[Task]:
    rng = random.Random(seed)
    things = ["lamp", "chair", "table", "sofa", "shelf", "carpet", "mirror", "clock", "curtain", "pillow"]
    asks = [
        "where is my {}",
        "the {} broke",
        "I want to return the {} and the {}",
        "does the {} come in blue?",
        "price of {}?",
    ]
    return [
        Task(
            id=f"{seed}-{number}",
            instruction=rng.choice(asks).format(*rng.sample(things, 2)),
            answer=rng.choice("abc"),
        )
        for number in range(count)
    ]


def test_the_bias_of_a_generator_is_seen_and_two_halves_of_one_source_are_not_told_apart():
    real, more = questions(150, 0), questions(150, 1)
    same = generator_bias(real, more)
    assert same is not None
    assert not same.told_apart
    assert 0.35 < same.auc < 0.65
    assert same.subjects < 0.25
    stilted = [
        Task(instruction=f"Kindly inform me, dear assistant, regarding: {task.instruction}", answer=7)
        for task in more
    ]
    seen = generator_bias(real, stilted)
    assert seen is not None
    assert seen.told_apart
    assert seen.auc > 0.95
    assert any("kindly" in word for word in seen.telling)
    assert seen.words[1] > seen.words[0] + 4
    assert seen.unseen[1] > 0.3
    assert seen.answers["number"] == (0.0, 1.0)
    assert generator_bias(real[:5], more) is None


def test_a_difference_in_success_is_told_with_its_interval():
    real, more = questions(60, 0), questions(60, 1)
    runs = {task.id: [number % 2 == 0] for number, task in enumerate(real)}
    runs |= {task.id: [number % 10 > 0] for number, task in enumerate(more)}
    bias = generator_bias(real, more, successes=runs)
    assert bias is not None
    assert bias.success is not None
    before, after, (low, high) = bias.success
    assert (before, after) == (0.5, 0.9)
    assert 0 < low < 0.4 < high


def test_from_documents_and_a_record_to_questions_that_are_compared_with_what_users_ask(tmp_path, capsys):
    folder, record, output = tmp_path / "docs", tmp_path / "runs.db", tmp_path / "questions.jsonl"
    folder.mkdir()
    for document in offices():
        (folder / f"{document.title}.md").write_text(document.text)
    with Store(record) as store:
        for number, task in enumerate(questions(30, 0)):
            outcome = Outcome.FAILURE if number % 4 == 0 else Outcome.SUCCESS
            store.put(Trajectory(task=task, outcome=outcome))

    def drafts(request) -> str:
        if "Answer a question" in request.text:
            return reads(request)
        assert "answered badly" in request.text  # the failures of the record are told to the writer
        own = [
            draft(one["id"].split()[1].removesuffix(".md"), document=one["id"]) for one in shown(request.text)
        ]
        fields = [{name: getattr(one, name) for name in one.__struct_fields__} for one in own]
        return json.dumps({"questions": fields})

    with ScriptedServer(drafts) as server:
        words = ["tasks", "write", folder, "--output", output, "--store", record, "--number", 10]
        words += ["--model", "scripted", "--base-url", server.base_url]
        done = answered(capsys, *words, "--json")
        bought = len(server.requests)
        again = command(capsys, *words)
        assert len(server.requests) == bought  # no answer is paid for twice
    assert done["kept"] == 10
    assert done["bias"] is None
    assert again.returncode == 0
    assert "too few to compare" in again.stdout
    written = from_jsonl(output)
    assert all(task.answer_known and task.split and task.meta["evidence"]["passage"] for task in written)
    mapped = command(capsys, "tasks", "cover", output, "--store", record)
    assert mapped.returncode == 1
    assert "missing" in mapped.stdout


def test_from_a_set_to_a_wider_one_in_which_variations_stay_beside_their_tasks(tmp_path, capsys):
    file, output = tmp_path / "tasks.jsonl", tmp_path / "wider.jsonl"
    to_jsonl(file, [*PARENTS, Task(instruction="Tell me a story.")])

    def write(request) -> str:
        return "SAME" if "exactly the same, so" in request.text else rewrite()(request)

    with ScriptedServer(write) as server:
        words = [
            "tasks",
            "vary",
            file,
            "--output",
            output,
            "--number",
            20,
            "--model",
            "scripted",
            "--base-url",
            server.base_url,
        ]
        done = command(capsys, *words)
    assert done.returncode == 1
    assert "12 of 20" in done.stdout
    assert "tasks without a right answer or a checker" in done.stdout
    wider = from_jsonl(output)
    assert len(wider) == 13 + 12
    groups: dict[str, set[object]] = {}
    for task in wider:
        groups.setdefault(task.group, set()).add(task.split)
    assert all(len(sides) == 1 for sides in groups.values())
    assert not any(task.group == "" for task in wider)


def test_documents_that_are_none_are_refused_with_what_to_give(tmp_path, capsys):
    table = tmp_path / "rows.csv"
    table.write_text("id,colour\n1,red\n")
    for path, reason in ((tmp_path / "nowhere", "there is no"), (table, "no column of texts")):
        refused = command(
            capsys,
            "tasks",
            "write",
            path,
            "--output",
            tmp_path / "q.jsonl",
            "--model",
            "m",
            "--base-url",
            "http://127.0.0.1:9/v1",
        )
        assert refused.returncode
        assert reason in refused.stderr


AGENT = '''
def answer(request: str) -> str:
    """Knows nothing but what the request says."""
    import re
    numbers = re.findall(r"555-\\d+", request)
    place = request.rpartition("The request:")[2] or request
    named = [word for word in re.findall(r"[A-Z]\\w+", place) if word in request.partition("The request:")[0]]
    return numbers[0] if numbers and named else "unknown"
'''


def test_what_an_agent_can_do_only_with_a_document_at_hand_is_recorded_without_it(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "guided_agent.py").write_text(AGENT)
    folder, file, record = tmp_path / "docs", tmp_path / "tasks.jsonl", tmp_path / "runs.db"
    folder.mkdir()
    for document in offices():
        (folder / f"{document.title}.md").write_text(document.text)
    asked = [
        Task(
            id=place,
            instruction=draft(place).question,
            answer=draft(place).answer,
            group=place,
            split=Split.GATE if place == "York" else Split.TRAIN,
            meta={"evidence": {"document": f"Office {place}.md"}},
        )
        for place in PLACES
    ]
    to_jsonl(
        file, [*asked, Task(id="?", instruction="Sing for the Lisbon office.", split=Split.TRAIN, group="?")]
    )
    words = [
        "tasks",
        "guide",
        file,
        "--agent",
        "guided_agent:answer",
        "--documents",
        folder,
        "--store",
        record,
    ]
    done = answered(capsys, *words, "--reward", "exact", "--json")
    assert (done["tasks"], done["solved"], done["guided"], done["helped"]) == (11, 0, 11, 11)
    assert (done["misguided"], done["misled"]) == (11, 0)
    with Store(record) as store:
        runs = list(store.trajectories())
    assert {run.task.id for run in runs} == set(PLACES) - {"York"}
    assert all(run.score("exact") == 1.0 and run.meta["provenance"]["how"] == "guided" for run in runs)
    assert not any("How this is done" in json.dumps([step.observation for step in run.steps]) for run in runs)
    assert all(run.task.instruction == draft(run.task.id).question for run in runs)
    mapped = command(capsys, "tasks", "cover", file, "--store", record)
    assert "0 runs" in mapped.stderr  # a run with a document at hand is no traffic
    refused = command(capsys, *words)
    assert refused.returncode
    assert "--reward" in refused.stderr
