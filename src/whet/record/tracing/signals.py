"""Implicit feedback, read from conversations: signs that users give without being asked.

Four extractors look at what a user did after an answer: went on to something new, asked the same again in
other words, said in passing that it was right or wrong, or left without getting what was asked for.  Each says
nothing where it is not sure; a wrong label costs more than a missing one.  They read English, and what they
find is Feedback of its own kind (`implicit.*`), so that it can be weighed apart from a thumb.

`hear` puts it into the record; the server calls it as sessions go on, and every command and function that reads
recorded runs before it reads them.  `telling` says which feedback counts where a person spoke and acted.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import msgspec

from ...errors import StoreError
from ...types import Feedback, Json, Trajectory, digest
from ..store import Store
from ..store.schema import LISTED, listed

ALIKE = 0.5
"""Share of the shorter one's content words from which a message may repeat an earlier one."""
OVERLAP = 0.35
"""Share of the content words of both that must stand in both, for it to repeat the other."""
APART = 1 / 3
"""Share of its content words from which on a message is too like an earlier one to be about something else."""
LEFT_AFTER = 1800.0
"""Seconds without a word after which a user is taken to have left."""
IMPLICIT = "implicit."
"""Prefix of the kind of such Feedback."""
_TOGETHER = 200
"""Sessions that are read together."""
STATE = "signals"
"""The key in the record under which it is kept how far sessions were read."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation."""

    role: str
    """`user` or `assistant`."""
    text: str
    at: float = 0.0
    """Unix time in seconds; 0 where it is not known."""
    run: str = ""
    """Id of the run that an assistant's message came from."""


@dataclass(frozen=True, slots=True)
class Signal:
    """A sign in a user's behaviour for or against one answer."""

    kind: str
    """`continued`, `rephrased`, `praised`, `criticised` or `abandoned`."""
    value: float
    """1 speaks for the answer, -1 against it."""
    turn: int
    """Index of the assistant's message that is meant."""
    why: str
    at: float = 0.0
    """Unix time in seconds at which it showed: of the message after, or when the user was taken to have left."""


class _HeardTask(msgspec.Struct):
    instruction: str = ""


class _HeardRun(msgspec.Struct):
    """Of a Trajectory what conversations are made of: the steps are most of it, and are not read."""

    task: _HeardTask
    id: str
    started: float
    session: str | None = None
    output: Json = None
    seconds: float | None = None


def signals(conversation: Sequence[Turn], *, ended: float | None = None) -> list[Signal]:
    """The signals in a conversation for the answers in it, at most one for each, the surest first.

    Args:
        ended: Unix time in seconds up to which the conversation is known; a user who said nothing more for
            LEFT_AFTER seconds has left.  None: it is over.
    """
    signs = []
    questions = _Questions()
    next_questions = _next_questions(conversation)
    for index, turn in enumerate(conversation):
        if turn.role == "user":
            questions.add(turn.text)
        after = next_questions[index]
        if turn.role != "assistant" or questions.last is None:
            continue
        if after is None:
            gone = ended is None or not turn.at or ended - turn.at > LEFT_AFTER
            signal = _abandoned(index, turn.text) if gone else None
        else:
            signal = (
                _sentiment(index, after.text)
                or _rephrased(index, questions.last, after.text)
                or _continued(index, questions, after.text)
            )
        if signal is not None:
            showed = turn.at + LEFT_AFTER if after is None else after.at
            signs.append(replace(signal, at=showed))
    return signs


def _next_questions(conversation: Sequence[Turn]) -> list[Turn | None]:
    """For each message the next one of the user after it."""
    following: list[Turn | None] = []
    question: Turn | None = None
    for turn in reversed(conversation):
        following.append(question)
        if turn.role == "user":
            question = turn
    return following[::-1]


class _Questions:
    """The user's messages so far, by their words: a session of thousands is not searched whole for each of them."""

    def __init__(self) -> None:
        self.last: str | None = None
        self._unread: list[str] = []
        """Most sessions are one question: its words are asked for by no other."""
        self._words: list[set[str]] = []
        self._with: dict[str, list[int]] = {}

    def add(self, text: str) -> None:
        """One more."""
        self.last = text
        self._unread.append(text)

    def alike(self, words: set[str]) -> bool:
        """True if one of the messages has `APART` of these words."""
        for text in self._unread:
            own = _words(text)
            for word in own:
                self._with.setdefault(word, []).append(len(self._words))
            self._words.append(own)
        self._unread.clear()
        most = math.ceil(APART * len(words))
        # A message with so many of them has one of the rarest: those with none of these need not be looked at.
        rarest = sorted((self._with.get(word, []) for word in words), key=len)[: len(words) - most + 1]
        return any(
            len(self._words[number] & words) >= most for having in rarest for number in reversed(having)
        )


def conversations(runs: Iterable[Trajectory | _HeardRun]) -> dict[str, list[Turn]]:
    """Session id → its conversation, of runs that each are one question and its answer.

    A run without a session, or whose answer is no text, is left out; `why_silent` says which.
    """
    sessions: dict[str, list[Turn]] = {}
    for run in sorted(runs, key=lambda trajectory: (trajectory.started, trajectory.id)):
        answer = _answer(run)
        if run.session is None or answer is None:
            continue
        turns = sessions.setdefault(run.session, [])
        turns.append(Turn("user", run.task.instruction, run.started))
        turns.append(Turn("assistant", answer, run.started + (run.seconds or 0.0), run.id))
    return sessions


def why_silent(run: Trajectory) -> str | None:
    """The reason why a run is part of no conversation, and what to do about it; None if it is."""
    if run.session is None:
        return "the run names no session; give one with whet.run(session=...), x-whet-session or session.id"
    if _answer(run) is None:
        return "the run's answer is not text, so no message can be read as a reply to it"
    return None


def _answer(run: Trajectory | _HeardRun) -> str | None:
    """The answer as text; the values of a generator are its pieces."""
    output = run.output
    if isinstance(output, list) and output and all(isinstance(piece, str) for piece in output):
        return "".join(output)
    return output if isinstance(output, str) else None


def implicit_feedback(
    runs: Iterable[Trajectory | _HeardRun], *, ended: float | None = None
) -> list[Feedback]:
    """The signals of all sessions as Feedback, whose ids make recording them again harmless."""
    return _feedback_of(conversations(runs), ended)


def _feedback_of(sessions: Mapping[str, Sequence[Turn]], ended: float | None) -> list[Feedback]:
    feedback = []
    for session, turns in sessions.items():
        for signal in signals(turns, ended=ended):
            turn = turns[signal.turn]
            # Not of the time: a session that is heard again gives the same ids, which the record takes once.
            id = digest((session, turn.run, signal.kind), 24)
            feedback.append(
                Feedback(
                    run=turn.run,
                    value=signal.value,
                    comment=signal.why,
                    kind=IMPLICIT + signal.kind,
                    id=id,
                    at=signal.at,
                )
            )
    return feedback


_heard_runs = msgspec.json.Decoder(_HeardRun)


def hear(store: Store, *, now: float | None = None, most: int | None = None) -> int:
    """Record the signals in the sessions that went on since the last time; how many were new.

    Costs two small reads where nothing happened.  A record that cannot be written is left as it is.

    Args:
        now: Unix time in seconds; whoever said nothing for LEFT_AFTER seconds has left.
        most: trajectories since the last time that are looked at; the next call goes on.
    """
    at = time.time() if now is None else now
    state = store.state(STATE) or {}
    after, waiting = state.get("after", 0), dict(state.get("waiting", {}))
    ((last,),) = store.database.rows("SELECT coalesce(max(seq), 0) FROM trajectories")
    last = last if most is None else min(last, after + most)
    due = {session for session, moment in waiting.items() if moment <= at}
    if last > after:
        query = "SELECT DISTINCT session FROM trajectories WHERE seq > ? AND seq <= ? AND session IS NOT NULL"
        due |= {session for (session,) in store.database.rows(query, [after, last])}
    elif not due:
        return 0
    fresh: list[Feedback] = []
    sessions = sorted(due)
    for start in range(0, len(sessions), _TOGETHER):
        together = sessions[start : start + _TOGETHER]
        for session in together:
            waiting.pop(session, None)
        runs = _runs_of(store, together)
        heard = conversations(runs)
        fresh += _feedback_of(heard, at)
        waiting |= _departures(runs, heard, at)
    listed_ids = listed(feedback.id for feedback in fresh)
    query = f"SELECT id FROM feedback WHERE id IN {LISTED}"
    recorded = {id for (id,) in store.database.rows(query, [listed_ids])} if fresh else set()
    fresh = [feedback for feedback in fresh if feedback.id not in recorded]
    # One commit: feedback without the place read so far would be looked for again, the place alone would lose it.
    with suppress(StoreError), store.batch() as batch:
        batch.add_feedback(*fresh)
        batch.put_state(STATE, {"after": last, "waiting": waiting})
    return len(fresh)


def _runs_of(store: Store, sessions: Sequence[str]) -> list[_HeardRun]:
    query = f"SELECT body FROM trajectories WHERE session IN {LISTED}"
    try:
        return [_heard_runs.decode(body) for (body,) in store.database.rows(query, [listed(sessions)])]
    except (msgspec.DecodeError, ValueError) as exception:
        raise StoreError(f"a stored Trajectory cannot be read: {exception}") from exception


def _departures(
    runs: Sequence[_HeardRun], heard: Mapping[str, Sequence[Turn]], at: float
) -> dict[str, float]:
    """Session → Unix time at which its user has left, of those who may be there still.

    Only of sessions in which leaving would be a sign: most end with a good answer, and need no second look.
    """
    ends = {session: len(turns) - 1 for session, turns in heard.items()}
    departures = {session: 0.0 for session, end in ends.items() if _abandoned(end, heard[session][end].text)}
    for run in runs:
        if run.session in departures:
            left = run.started + (run.seconds or 0.0) + LEFT_AFTER
            departures[run.session] = max(departures[run.session], left)
    # A second more: `signals` wants strictly more than LEFT_AFTER seconds.
    return {session: left + 1.0 for session, left in departures.items() if left >= at}


def telling(feedback: Iterable[Feedback]) -> list[Feedback]:
    """The feedback with a value that counts: explicit where there is any, else implicit."""
    valued = [opinion for opinion in feedback if opinion.value is not None]
    spoken = [opinion for opinion in valued if not opinion.kind.startswith(IMPLICIT)]
    return spoken or valued


_NOT = r"(?:not|n't|isn't|wasn't|doesn't|didn't|don't|never|hardly)"
_PRAISE = re.compile(
    r"\b(?:thank(?:s| you)|thx|cheers|perfect|great|excellent|awesome|brilliant|wonderful|exactly|"
    r"that(?:'s| is) (?:right|correct|it|all i needed|what i (?:needed|wanted|meant))|"
    r"(?:that|this|it) (?:worked|works|helped|helps)|makes sense|you(?:'re| are) right|love it|nice one|"
    r"much appreciated|appreciate it)\b"
)
_BLAME = re.compile(
    r"\b(?:wrong|incorrect|useless|nonsense|ridiculous|terrible|awful|hopeless|frustrating|disappoint\w*|garbage|"
    r"(?:that|this|it)(?:'s| is| was)? " + _NOT + r" (?:\w+ ){0,3}?"
    r"(?:right|correct|true|what i|it|help|helpful|work|working|the one|answer)|"
    + _NOT
    + r" what i (?:asked|meant|wanted|said)|"
    r"(?:did|does|do) ?n[o']t (?:\w+ )?(?:work|help|answer|understand|listen|compile|run|load)|"
    r"you (?:misunderstood|made (?:that|this|it) up|keep (?:saying|repeating|giving|doing)|ignored|forgot|missed)|"
    r"still " + _NOT + r"|i (?:already|just) (?:said|told)|"
    r"makes no sense|no use|try again|that(?:'s| is) false|made up|hallucinat\w*)\b"
)
_FORM_ONLY = re.compile(
    r"\b(?:thanks|thank you|thx|cheers),? (?:but|anyway|though|for nothing)\b|\bno,? thanks\b|"
    r"\b(?:oh|just|yeah|well)[, ]+(?:great|perfect|brilliant|wonderful|thanks)\b|\bgreat[,.] (?:another|now)\b"
)
"""Thanks that are none: a "but" follows, or they are meant the other way round."""
_NO_PRAISE = re.compile(
    r"\b(?:great|perfect|excellent|exactly|right) (?:\w+ )?(?:deal|lakes|britain|way|time|how)\b"
)
_ABOUT_WRONG = ("what is wrong", "what's wrong", "is it wrong", "is that wrong", "was i wrong")


def _sentiment(index: int, text: str) -> Signal | None:
    lowered = text.lower().replace("’", "'")
    if _FORM_ONLY.search(lowered):
        return Signal("criticised", -1.0, index, f"the next message is thanks in form only: {text[:80]!r}")
    # Blame goes before praise: "great, but that is wrong" has both.
    blame = _BLAME.search(lowered)
    # "That is not wrong" and "what is wrong?" do not blame.
    if blame and not _negated(blame.group(), lowered) and not lowered.startswith(_ABOUT_WRONG):
        return Signal("criticised", -1.0, index, f"the next message says {blame.group()!r}")
    praise = _PRAISE.search(_NO_PRAISE.sub("", lowered))
    if praise and not _negated(praise.group(), lowered):
        return Signal("praised", 1.0, index, f"the next message says {praise.group()!r}")
    return None


def _negated(words: str, text: str) -> bool:
    return re.search(r"(?:\b(?:not|nothing|never|hardly)|n't) (?:\w+ )?" + re.escape(words), text) is not None


STOP_WORDS = frozenset(
    """
    a an the is are was were be been do does did can could will would shall should may might must have has had
    i you he she it we they me my your his her our their this that these those of to in on at for from by with about
    and or but if then so as what which who whom whose when where why how there here not no yes any some also
    please tell say know give show find get need want again just once more mean meant asking ask asked question
    looking instead
    """.split()  # noqa: SIM905 - a list of words is read as words
)
"""Words that say little of what a message is about."""
_AGAIN = re.compile(
    r"\b(?:i mean|i meant|what i (?:mean|meant|want|wanted|am asking|was asking)|let me rephrase|in other words|"
    r"to be clear|again[,:]|once more|rather|no,|i(?:'m| am) asking|to clarify|put differently|my question (?:was|is))"
)
_NEXT = re.compile(r"^(?:and|what about|how about|also|now|next|another|ok(?:ay)?,? (?:and|now)|then)\b")


def _words(text: str) -> set[str]:
    return {stem(word) for word in re.findall(r"[a-z0-9]+", text.lower()) if word not in STOP_WORDS}


def stem(word: str) -> str:
    """A lower-case English word without its most frequent endings."""
    for end in ("ing", "ies", "ed", "es", "s", "ly"):
        if word.endswith(end) and len(word) - len(end) >= 3:
            return word[: -len(end)]
    return word


def _rephrased(index: int, before: str, after: str) -> Signal | None:
    old, new = _words(before), _words(after)
    if not old or not new:
        return None
    share = len(old & new) / min(len(old), len(new))
    marked = bool(_AGAIN.search(after.lower()))
    # "And for Lisbon?" swaps one thing for another: words of its own that the first question lacks, in few words.
    swapped = bool(_NEXT.match(after.lower())) or _names(after) - _names(before)
    repeats = share >= ALIKE and len(old & new) >= OVERLAP * len(old | new)
    if (repeats and not swapped) or (marked and share > 0 and share >= ALIKE / 2):
        return Signal("rephrased", -1.0, index, f"{share:.0%} of its words were in the question before")
    return None


def _names(text: str) -> set[str]:
    """Subjects of a question: numbers, and words with a capital that do not begin a sentence."""
    inside = re.findall(r"(?<![.!?] )(?<!^)\b(?:[A-Z][a-z]+|[A-Z]{2,}|\d+)\b", text)
    return {word.lower() for word in inside if word != "I"}


_REQUEST = re.compile(
    r"^(?:please |can you |could you )?(?:add|book|buy|call|cancel|change|check|compare|compute|convert|create|draft|"
    r"explain|find|fix|list|make|move|open|order|plan|put|remind|run|search|send|set|show|sort|summari[sz]e|tell|"
    r"translate|update|write)\b"
)


def _continued(index: int, questions: _Questions, after: str) -> Signal | None:
    new = _words(after)
    lowered = after.lower()
    asks = lowered.rstrip().endswith("?") or _NEXT.match(lowered) or _REQUEST.match(lowered)
    if len(new) < 2 or not asks or _AGAIN.search(lowered):
        return None
    if _NEXT.match(lowered) or not questions.alike(new):
        return Signal("continued", 1.0, index, "the user went on to something else")
    return None


_OPEN = re.compile(
    r"\b(?:i (?:do not|don't|cannot|can't|could not|couldn't|am unable|was unable|am not able)|unfortunately|sorry|"
    r"no results|not found|unable to|went wrong|error|please (?:provide|clarify|specify|try)|"
    r"could you (?:clarify|specify|tell|provide|rephrase)|can you (?:clarify|specify|tell|provide|rephrase))\b"
)


def _abandoned(index: int, text: str) -> Signal | None:
    """Left after an answer that was none: an apology, an error, or a question back."""
    lowered = text.lower().replace("’", "'")
    if _OPEN.search(lowered) or lowered.rstrip().endswith("?"):
        return Signal("abandoned", -1.0, index, "the user left after an apology, an error or a question back")
    return None
