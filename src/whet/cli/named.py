"""Functions that the command line names as module:function, rewards among them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ..errors import InputError, NotFoundError
from .root import counted

if TYPE_CHECKING:
    from contextlib import AsyncExitStack

    from ..judge import Reward
    from ..judge.card import ReliabilityCard
    from ..judge.panel import Panel
    from ..models import Model
    from ..record.store import Store
    from ..types import Score, Trajectory

RUBRIC = "rubric"
"""Name of the reward that reads the record's rubric."""
RUBRICS = (".md", ".txt")
"""Endings of a file that holds a rubric."""
GRADERS = (".json", ".jsonl")
"""Endings of a file in which another product defines judges."""
ASKED = ("grounded", "factual")
"""Names of the rewards that ask a model about each statement of an answer."""
AT_ONCE = 16
"""Trajectories judged together, for a reward that waits for something, such as a model."""


def named(name: str) -> Callable[..., Any]:
    """The function of `module:function`; the current folder is searched first.

    Raises:
        InputError: it does not exist, or its module cannot be imported.
    """
    from ..serve.worker.agent import load

    if is_judge(name):
        raise InputError(
            f"{name} is a judge, which is asked: score the record by it (whet score --store RECORD --reward {name} "
            "--base-url URL), and give --score with the name that it prints"
        )
    function: Any = load(name)
    if not callable(function):
        raise InputError(f"{name!r} is a {type(function).__name__}, not a function")
    return cast("Callable[..., Any]", function)


def known_score(store: Store, name: str | None) -> None:
    """Refuse the name of a score that no recorded run has: a slip of the pen would say that nothing was judged.

    Raises:
        NotFoundError: there is none; names those that there are.
    """
    if name is None:
        return
    names: set[str] = set()
    for run in store.trajectories():
        if name in run.scores:
            return
        names.update(run.scores)
    # Of an empty record something else is said.
    if store.count("trajectories"):
        there = (
            f"their scores are {', '.join(sorted(names))}"
            if names
            else "none has a score: whet score gives them"
        )
        raise NotFoundError(f"no run in the record has a score {name!r}; {there}")


def broken(broke: int, scored: int, why: str) -> str:
    """That a reward broke on runs, which count as 0; where it breaks on all, it is the reward that is broken."""
    said = why.partition(": ")[2] or why
    if broke >= scored:
        return f"it breaks on each of them ({said}), so it is broken itself: mend it (whet audit)"
    return f"{counted(broke, 'run')} broke it and count as 0 ({said})"


def named_rewards(names: Sequence[str]) -> list[Reward]:
    """Rewards by their names: whet's own, a plug-in's, or module:function.

    Raises:
        InputError: there is none of that name.
    """
    from ..learn.plugins import load

    return [named(name) if ":" in name or is_judge(name) else load("whet.rewards", name) for name in names]


def plain_rewards(names: Sequence[str]) -> list[Reward]:
    """The same for a command that asks nobody.

    Raises:
        InputError: as above, or one has to be asked.
    """
    from ..judge.base import is_async, name_of

    rewards = named_rewards(names)
    for name, reward in zip(names, rewards, strict=True):
        if is_async(reward):
            raise InputError(
                f"{name} is a judge, which is asked: score the record by it (whet score --store RECORD --reward {name})"
                f", and the scores that it gives stand under {name_of(reward)}"
            )
    return rewards


async def opened_rewards(
    names: Sequence[str],
    store: Store,
    base_url: str | None,
    stack: AsyncExitStack,
    *,
    judge_model: str | None = None,
    steers: bool = False,
) -> list[Reward]:
    """The same, and judges, asked at `base_url`: `rubric`, the record's proven one, files of rubrics and of panels, and
    judges of other products' files.

    Args:
        judge_model: whom `grounded` and `factual` ask, and a rubric without a card.
        steers: take judges without a card that admits them, too: their scores promote nothing.

    Raises:
        InputError: as above, or the record holds no such rubric, or no card that admits a file's judge; or no model
            was named that a judge could ask.
    """
    from ..judge.grounding import Grounded, recorded_sources, right_answer
    from ..judge.judge import judge_of
    from ..judge.rubric import RubricReward, recorded

    rewards: list[Reward] = []
    for name in names:
        if name == RUBRIC:
            rubric = recorded(store)
            if rubric is None:
                raise InputError(
                    f"{store.path} holds no rubric that agreed with people: have one drafted and proven with whet "
                    f"label --rubric --store {store.path} --model NAME --base-url URL"
                )
            asked = await recorded_model(rubric.model, store, base_url, stack)
            rewards.append(RubricReward(RUBRIC, rubric, asked))
        elif is_rubric(name):
            text = rubric_text(Path(name))
            card = None if steers and judge_model is not None else _admitting(store, name, text)
            asked = await recorded_model(card.model if card else judge_model or "", store, base_url, stack)
            judge = Path(name).stem if card is None else card.judge
            rewards.append(judge_of(text, asked, card.settings if card else {}, name=judge, card=card))
        elif (panel := _panel(name)) is not None:
            rewards.append(await _panel_reward(name, panel, store, base_url, stack, steers=steers))
        elif name in ASKED:
            if judge_model is None:
                raise InputError(
                    f"--reward {name} asks a model: name it with --judge-model, and give its --base-url"
                )
            asked = await recorded_model(judge_model, store, base_url, stack)
            sources = recorded_sources if name == "grounded" else right_answer
            rewards.append(Grounded(asked, sources, name=name))
        elif is_grader_file(name):
            rewards.append(await _imported(name, store, base_url, stack))
        else:
            rewards += named_rewards([name])
    return rewards


def warning(rewards: Sequence[Reward], metric: str | None = None) -> str:
    """What there is to say, before anything is spent, of rewards by which no gate promotes; "" if one decides that may.

    Args:
        metric: the score that decides, if not that of the first reward.
    """
    from ..judge.base import name_of, only_steers

    deciding = next((reward for reward in rewards if metric in (None, name_of(reward))), None)
    if deciding is None or not only_steers(deciding):
        return ""
    return (
        f"{name_of(deciding)} is a judge that no reliability card in the record admits: it may steer, and the gate "
        "promotes nothing by it. Let another reward decide, or measure the judge on labelled answers: whet audit"
    )


def _panel(name: str) -> Panel | None:
    """The panel that a file holds which whet audit wrote; None of any other name.

    Raises:
        InputError: a panel that was changed into none.
    """
    from ..judge.panel import Panel

    path = Path(name)
    if path.suffix.lower() != ".json" or not path.is_file():
        return None
    try:
        content = path.read_bytes()
        return msgspec.json.decode(content, type=Panel)
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror or error}") from error
    except (msgspec.MsgspecError, UnicodeError) as error:
        if b'"family_of"' in content:
            raise InputError(f"{name} is no panel that whet audit wrote: {error}") from error
        return None


async def _panel_reward(
    name: str, panel: Panel, store: Store, base_url: str | None, stack: AsyncExitStack, *, steers: bool
) -> Reward:
    """A panel as a reward, its judges asked at one endpoint.

    Raises:
        InputError: it names no judges, or no card admits it and it shall not only steer.
    """
    from ..judge.card import recorded_card
    from ..judge.panel_reward import PanelReward, refuse_unasked

    try:
        refuse_unasked(panel)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
    card = recorded_card(store, panel.key)
    if card is None and not steers:
        raise InputError(
            f"{name} is a panel without a reliability card in {store.path}: it may steer, and promotes nothing. Give "
            f"--store {store.path} to the whet audit that fits it"
        )
    if card is not None and not card.admitted and not steers:
        raise InputError(card.refusal)
    models = {
        model: await recorded_model(model, store, base_url, stack)
        for model in sorted({judge.model for judge in panel.judges.values()})
    }
    return PanelReward(panel, models, card=card)


def is_grader_file(name: str) -> bool:
    """True for a file of another product's judges, or one judge of it, as FILE:JUDGE."""
    return any(Path(part).suffix.lower() in GRADERS for part in (name, name.partition(":")[0]))


async def _imported(name: str, store: Store, base_url: str | None, stack: AsyncExitStack) -> Reward:
    """A judge that another product's file defines, which a card admits.

    Raises:
        InputError: the file defines none of that name, or several; or no card admits it.
    """
    from ..judge.card import recorded_card
    from ..judge.graders import ImportedGrader
    from ..judge.imported import read_judges
    from ..sandbox import Pool

    file, _, chosen = name.partition(":")
    specs = read_judges(Path(file)).specs
    matching = [spec for spec in specs if chosen in ("", spec.name)]
    if len(matching) != 1:
        names = ", ".join(f"{file}:{spec.name}" for spec in specs) or "none"
        raise InputError(f"--reward {name} has to name one judge; {file} defines: {names}")
    (spec,) = matching
    card = recorded_card(store, spec.version)
    if card is None:
        raise InputError(
            f"{file}:{spec.name} has no reliability card: it may steer, and promotes nothing. Measure it on labelled "
            f"answers: whet audit {file} --labels FILE --store {store.path}"
            + (" --model NAME --base-url URL" if spec.asks else "")
        )
    if not card.admitted:
        raise InputError(card.refusal)
    model = await recorded_model(card.model, store, base_url, stack) if spec.asks else None
    pool = await stack.enter_async_context(Pool()) if spec.runs_code else None
    return ImportedGrader(spec, model=model, pool=pool, card=card)


def is_judge(name: str) -> bool:
    """True for the name of what is asked: a file of a rubric, a panel or judges, or one that reads statements."""
    return is_rubric(name) or is_grader_file(name) or name in (RUBRIC, *ASKED)


class AskedJudge:
    """A judge by its name as a reward that asks in the event loop of its first run, and steers without a card, too.

    Args:
        name: of a judge (`is_judge`).
        record: holds its cards, and keeps what it answered; None forgets both at the end.
        base_url: where it is asked.
        judge_model: whom `grounded` and `factual` ask, and a rubric without a card.
        steers: take a judge without a card that admits it.

    Raises:
        InputError: there is none of that name, nothing says which model is asked where, or no card admits it and it
            shall not only steer.
    """

    is_async = True

    def __init__(
        self,
        name: str,
        record: Path | None,
        base_url: str | None,
        judge_model: str | None = None,
        *,
        steers: bool = True,
    ) -> None:
        from contextlib import AsyncExitStack

        from ..judge import name_of, version_of
        from ..record.store import Store
        from .root import existing

        self._stack = AsyncExitStack()
        self._opened: asyncio.Future[Reward] | None = None
        self._reward: Reward | None = None
        store = Store(":memory:" if record is None else existing(record))
        self._stack.enter_context(store)

        async def opened(stack: AsyncExitStack) -> Reward:
            (reward,) = await opened_rewards(
                [name], store, base_url, stack, judge_model=judge_model, steers=steers
            )
            if not steers and (why := warning([reward])):
                raise InputError(why)
            return reward

        async def described() -> tuple[str, str]:
            async with AsyncExitStack() as stack:
                reward = await opened(stack)
                return name_of(reward), version_of(reward)

        self._open = opened
        try:
            self.name, self.version = asyncio.run(described())
        except BaseException:
            store.close()
            raise

    async def __call__(self, trajectory: Trajectory) -> Score:
        from ..judge import ascore

        if self._opened is None:
            self._opened = asyncio.ensure_future(self._open(self._stack))
        self._reward = await self._opened
        return await ascore(self._reward, trajectory)

    def withdrawn(self, runs: Sequence[Trajectory]) -> str:
        """As of `whet.judge.base.withdrawn`."""
        from ..judge.base import withdrawn

        return "" if self._reward is None else withdrawn(self._reward, runs)

    async def aclose(self) -> None:
        """Close what was opened, in the loop that it belongs to."""
        await self._stack.aclose()


def is_rubric(name: str) -> bool:
    """True for the name of a file that holds a rubric."""
    return Path(name).suffix.lower() in RUBRICS


def rubric_text(path: Path) -> str:
    """The rubric of a file.

    Raises:
        InputError: it cannot be read, or is empty.
    """
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the rubric {path}: {error}") from error
    if not text:
        raise InputError(f"the rubric {path} is empty")
    return text


def rubric_of(given: str) -> str:
    """What `--rubric` says: the words themselves, or those of a file.

    Raises:
        InputError: it names a file that cannot be read, or is empty.
    """
    named = is_rubric(given) and (len(given.split()) == 1 or Path(given).is_file())
    return rubric_text(Path(given)) if named else given


def _admitting(store: Store, name: str, rubric: str) -> ReliabilityCard:
    """The card that admits the judge of a rubric.

    Raises:
        InputError: there is none; it says what would clear the judge.
    """
    from ..judge.card import MARKS, recorded_card

    card = recorded_card(store, rubric)
    if card is None:
        raise InputError(
            f"{name} is the rubric of a judge without a reliability card: it may steer, and promotes nothing. Measure "
            f"it on labelled answers: whet audit {name} --model NAME --base-url URL --labels FILE --store {store.path}"
        )
    if not card.admitted:
        raise InputError(card.refusal)
    if card.form != MARKS:
        raise InputError(
            f"the card of {name} is of {card.form}, and a gate has single answers marked: audit it on labelled single "
            "answers (input, output, label)"
        )
    return card


async def recorded_model(
    model: str,
    store: Store,
    base_url: str | None,
    stack: AsyncExitStack,
    *,
    key_variable: str = "OPENAI_API_KEY",
    since: str = "",
) -> Model:
    """A judge's model by its name, whose answers the record keeps: none is bought twice.

    Args:
        since: name of what was known; answers from before it are not taken.
    """
    from ..learn.evolution.in_one_call import Endpoints
    from ..models import RecordedModel
    from ..models.budget import Meter
    from ..record.store import Log

    endpoints = Endpoints(model=model, base_url=base_url, api_key=os.environ.get(key_variable))
    opened, _, _ = await endpoints.open(stack, Meter())
    assert opened is not None
    return RecordedModel(opened, Log(store, f"judge-since/{since}/{model}" if since else f"judge/{model}"))


def refuse_two_rewards(score: str | None, reward_function: str | None) -> None:
    """Refuse a recorded score beside a reward function.

    Raises:
        InputError: both are given.
    """
    if score is not None and reward_function is not None:
        raise InputError(
            "give --score for a recorded score, or --reward-function for a reward to compute now"
        )


def judged(
    trajectories: Sequence[Trajectory], name: str, judge: AskedJudge | None = None
) -> tuple[list[Trajectory], str, str]:
    """The trajectories scored by a reward, the score's name, and the reward's version.

    Args:
        judge: of that name, in the place of a function.

    Raises:
        InputError: there is no such function, or it could judge none of them.
    """
    from ..judge import ajudged, name_of, version_of
    from ..judge.base import withdrawn
    from ..judge.ranking import ranked

    reward = named(name) if judge is None else judge

    async def judge_all() -> list[Trajectory]:
        try:
            first = await judge_each()
            # What takes scores back once it has seen all has none left for these runs when it is asked again.
            return await judge_each() if withdrawn(reward, first) else first
        finally:
            if judge is not None:
                await judge.aclose()

    async def judge_each() -> list[Trajectory]:
        slots = asyncio.Semaphore(AT_ONCE)

        async def judged_alone(trajectory: Trajectory) -> Trajectory:
            async with slots:
                return await ajudged(trajectory, reward)

        return await ranked(await asyncio.gather(*map(judged_alone, trajectories)), [reward])

    # One loop for all: the client of a reward that asks a model belongs to the loop of its first call.
    scored = asyncio.run(judge_all())
    score = name_of(reward)
    if scored and all(trajectory.score(score) is None for trajectory in scored):
        reasons = sorted({trajectory.scores[score].reason for trajectory in scored})
        raise InputError(
            f"{name} could judge none of {len(scored)} trajectories: {'; '.join(reasons) or 'None'}"
        )
    return scored, score, version_of(reward)
