"""`whet tasks write` and `vary`: tasks that nobody asked yet, with evidence, and how they differ from real ones."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from ..errors import InputError, NotFoundError
from .queue import tasks_app
from .root import AtLeastOne, KeyVariable, Print, counted, existing, print_json

if TYPE_CHECKING:
    from ..learn.datasets.bias import GeneratorBias
    from ..learn.datasets.documents import Document
    from ..learn.datasets.written import WritingAccount
    from ..models import Model
    from ..types import Task
    from ..worlds.email import Mail

SHOWN = 60
SEEDS = 12
"""Questions that went wrong which a writer is told."""
Writer = Annotated[str, Parameter(help="The model that writes, by the name that its endpoint knows.")]
Address = Annotated[
    str, Parameter(help="Its endpoint: an OpenAI-compatible address, up to and including /v1.")
]
Checker = Annotated[
    str | None,
    Parameter(help="Another model at the same endpoint that checks what is written. If omitted, the writer."),
]


@tasks_app.command(name="write")
def write_tasks(
    documents: Path,
    /,
    *,
    output: Path,
    model: Writer,
    base_url: Address,
    reader_model: Checker = None,
    store: Path | None = None,
    number: AtLeastOne = 50,
    each: AtLeastOne = 1,
    batches: AtLeastOne | None = None,
    api_key_env: KeyVariable = "OPENAI_API_KEY",
    seed: int = 0,
    json: Print = False,
) -> int:
    """Have a model write questions about documents, and keep those that have evidence, can be found, and are answered.

    For example: whet tasks write ./mail --output questions.jsonl --model NAME --base-url URL --store runs.db

    The model writes from 20 documents at a time. A question is kept if the passage it names stands word for word in its
    document and holds the answer, if somebody could ask it who never saw the document, and if a reader who is shown the
    documents that fit best finds this answer and no other. Each task has its evidence and its origin in its meta. What
    users asked and were answered badly in --store is told to the writer, and how the questions differ from what users
    ask is printed. Exits 0 if there are as many as asked for; otherwise 1, with the reason.

    Parameters
    ----------
    documents
        A folder of text files (.txt, .md, .rst), of mails or a maildir; an mbox; or a table with a column `text`.
    output
        File of the tasks. Answers that were paid for are kept beside it, in OUTPUT.answers.db.
    store
        Record of what users asked: questions that failed are seeds, and the questions written are compared with it.
    number
        Questions wanted.
    each
        Most questions from one document.
    batches
        Most calls of the writer. If omitted, until the documents are used up.
    seed
        Random seed of the order of the documents.
    """
    from ..learn.datasets.division import divide
    from ..learn.datasets.written import write_questions
    from ..record.tasks import to_jsonl

    sources = read_documents(documents)
    real, failed = _asked(store)

    async def written() -> tuple[list[Task], WritingAccount]:
        async with AsyncExitStack() as stack:
            writer, reader = await _models(stack, output, model, reader_model, base_url, api_key_env)
            return await write_questions(
                sources,
                number,
                writer=writer,
                reader=reader,
                seeds=failed[:SEEDS],
                each=each,
                batches=batches,
                seed=seed,
            )

    tasks, account = asyncio.run(written())
    tasks = divide(tasks, seed=seed).tasks
    to_jsonl(output, tasks)
    return _told(tasks, real, account, output, json, noun="question", seed=seed)


@tasks_app.command(name="vary")
def vary_tasks(
    file: Path,
    /,
    *,
    output: Path,
    model: Writer,
    base_url: Address,
    judge_model: Checker = None,
    number: AtLeastOne = 50,
    api_key_env: KeyVariable = "OPENAI_API_KEY",
    seed: int = 0,
    json: Print = False,
) -> int:
    """Have a model ask tasks in other words, and keep what a judge takes for the same request.

    For example: whet tasks vary tasks.jsonl --output wider.jsonl --model NAME --base-url URL

    A variation has the start, the checker, the right answer, the group and the side of its task, and every number, name
    and quotation of it. A task that cannot be checked has none. Tasks that failed most are varied first. Exits 0 if
    there are as many as asked for; otherwise 1, with the reason.

    Parameters
    ----------
    file
        Tasks, as whet tasks collect writes them.
    output
        File of the tasks with their variations. Answers that were paid for are kept beside it, in OUTPUT.answers.db.
    number
        Variations wanted.
    seed
        Random seed of the order of the tasks.
    """
    from ..learn.datasets.varied import together, vary
    from ..record.tasks import from_jsonl, to_jsonl

    tasks = from_jsonl(file)

    async def varied() -> tuple[list[Task], WritingAccount]:
        async with AsyncExitStack() as stack:
            writer, judge = await _models(stack, output, model, judge_model, base_url, api_key_env)
            return await vary(tasks, number, writer=writer, judge=judge, seed=seed)

    variations, account = asyncio.run(varied())
    to_jsonl(output, together(tasks, variations))
    return _told(variations, tasks, account, output, json, noun="variation", seed=seed)


def read_documents(path: Path) -> list[Document]:
    """Text files, mails or the rows of a table as documents.

    Raises:
        NotFoundError: there is no such path.
        InputError: it holds no document.
    """
    from ..learn.datasets.documents import TEXTS, table_documents, text_documents
    from ..worlds.email import read_mail

    if not path.exists():
        raise NotFoundError(f"there is no {path}")
    if path.is_dir():
        texts = [one for one in path.rglob("*") if one.suffix.lower() in TEXTS and one.is_file()]
        documents = text_documents(texts, path) if texts else list(map(mail_document, read_mail(path).mails))
    elif path.suffix.lower() in TEXTS:
        documents = text_documents([path], path.parent)
    elif path.suffix.lower() in (".mbox", ".eml"):
        documents = list(map(mail_document, read_mail(path).mails))
    else:
        documents = table_documents(path)
    if not documents:
        raise InputError(f"{path} holds no document with a text")
    return documents


def mail_document(mail: Mail) -> Document:
    """A mail as its reader sees it; its group is its mailbox."""
    from ..learn.datasets.documents import Document

    sent = f"Date: {mail.date.date().isoformat()}\n" if mail.date else ""
    sender = f"{mail.sender_name} <{mail.sender}>" if mail.sender_name else mail.sender
    head = f"From: {sender}\nTo: {', '.join(mail.to[:5])}\n{sent}Subject: {mail.subject}"
    return Document(f"{mail.mailbox}/{mail.id}", f"{head}\n\n{mail.own}", "", mail.mailbox)


def _asked(store: Path | None) -> tuple[list[Task], list[str]]:
    """The tasks of a record's traffic, and the texts of those that failed, the worst first."""
    from ..learn.datasets.traffic import traffic
    from ..record.store import Store

    if store is None:
        return [], []
    with Store(existing(store)) as opened:
        demands = traffic(opened).demands
    failed = sorted((demand for demand in demands if demand.wrong), key=lambda demand: -demand.wrong)
    return [demand.task for demand in demands], [demand.text for demand in failed]


async def _models(
    stack: AsyncExitStack, output: Path, writer: str, checker: str | None, base_url: str, key_variable: str
) -> tuple[Model, Model]:
    """The two models, whose answers are kept beside the output: begun again, the command buys only new ones."""
    from ..models import OpenAIModel, RecordedModel
    from ..models.trial import trial_address
    from ..record.store import Log, Store

    record = stack.enter_context(Store(output.with_name(output.name + ".answers.db")))
    log = Log(record, "tasks")
    key, address = os.environ.get(key_variable), trial_address(base_url)
    opened = [
        RecordedModel(await stack.enter_async_context(OpenAIModel(address, name, api_key=key)), log)
        for name in dict.fromkeys((writer, checker or writer))
    ]
    return opened[0], opened[-1]


def _told(
    tasks: Sequence[Task],
    real: Sequence[Task],
    account: WritingAccount,
    output: Path,
    json: bool,
    *,
    noun: str,
    seed: int,
) -> int:
    from ..learn.datasets.bias import generator_bias

    bias = generator_bias(real, tasks, seed=seed)
    if json:
        fields: dict[str, Any] = {**msgspec.to_builtins(account), "output": str(output), "tasks": len(tasks)}
        print_json({**fields, "bias": None if bias is None else plain_bias(bias)})
    else:
        for line in _lines(account, output, noun):
            print(line)
        for line in bias_lines(bias, len(real), len(tasks)):
            print(line)
    return int(bool(account.why))


def _lines(account: WritingAccount, output: Path, noun: str) -> Iterator[str]:
    yield (
        f"{output}: {counted(account.kept, noun)} of {account.drafts} that were written in "
        f"{counted(account.batches, 'call')}"
    )
    for why, count in account.refused.most_common():
        example = account.examples.get(why, "")
        yield f"  refused {count}: {why}" + (f", for instance {example[:SHOWN]!r}" if example else "")
    if account.why:
        yield f"  {account.why}"
    usage = account.usage
    if usage.calls:
        yield f"  {usage.calls:,} calls, {usage.prompt_tokens:,} tokens in, {usage.output_tokens:,} out"


def bias_lines(bias: GeneratorBias | None, real: int, synthetic: int) -> Iterator[str]:
    """How synthetic tasks differ from real ones, as text."""
    from ..learn.datasets.bias import LEAST

    if bias is not None:
        yield f"{synthetic} synthetic tasks beside {real} real ones:"
        yield from (f"  {sentence}" for sentence in bias.sentences)
    elif real:
        yield f"{synthetic} synthetic tasks beside {real} real ones: too few to compare, it takes {LEAST} of each"


def plain_bias(bias: GeneratorBias) -> dict[str, Any]:
    """It as JSON has it."""
    return {**msgspec.to_builtins(bias), "told_apart": bias.told_apart, "sentences": bias.sentences}
