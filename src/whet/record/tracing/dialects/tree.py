"""Which spans are one step, and which step is inside which.

The rules come from what the frameworks do, and each is bound to a mark in the spans, so that two
agents, tools or calls that merely follow each other are never made one:

- a run's container (a workflow, a chain, an agent without a name) with one agent inside and nothing
  else is that agent; with several agents it is an agent of its own, around them;
- the outermost chain that is not an agent is the run: it becomes an agent; chains inside are nodes;
- a tool in a tool of the same name, a model call in a model call: two instrumentors saw one thing;
- a gateway's record belongs to the model call it happened in, or that has the same answer's id.

Spans may come in any order, twice, without their parents, or in a circle.  Nothing is recursive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

import msgspec

from ....types import AGENT, FUNCTION, LLM, TOOL
from ..content import Content
from .calls import ENCODING as CALL
from .messages import Message
from .reading import NODE, OTHER, SpanReading

STEPS = (AGENT, LLM, TOOL, FUNCTION)
_KNOWN = frozenset({*STEPS, NODE})


class Node(msgspec.Struct, eq=False):
    """One span in the tree of its run."""

    content: Content
    reading: SpanReading
    order: int
    """Of arrival: decides between spans that began at the same time."""
    is_call: bool
    """True of a gateway's record."""
    parent: Node | None = None
    depth: int = 0
    children: list[Node] = []
    into: Node | None = None
    """The step that this span is part of, if it is not the one that names it."""
    members: list[Node] = []
    """Of a step: itself first, then the spans merged into it."""
    holds: bool = False
    """True if a step is this span or lies below it."""
    inside: Node | None = None
    """Of a step: the one that it happened in, set by `steps`."""

    @property
    def step(self) -> Node | None:
        """The step that this span is or is part of."""
        if self.into is not None:
            return self.into
        return self if self.reading.kind in STEPS else None

    @property
    def started(self) -> int:
        if len(self.members) < 2:
            return self.content.span.started
        return min(member.content.span.started for member in self.members)

    @property
    def ended(self) -> int:
        if len(self.members) < 2:
            return self.content.span.ended
        return max(member.content.span.ended for member in self.members)

    def above(self) -> Iterator[Node]:
        """Its ancestors, nearest first."""
        ancestor = self.parent
        while ancestor is not None:
            yield ancestor
            ancestor = ancestor.parent


def grow(pairs: Iterable[tuple[Content, SpanReading]]) -> list[Node]:
    """The nodes of one run, linked and merged, parents before children."""
    nodes = [
        Node(content, reading, order, content.span[7] == CALL)
        for order, (content, reading) in enumerate(pairs)
    ]
    _link(nodes)
    ordered = _downward(nodes)
    kinds = [node.reading.kind for node in ordered]
    if _KNOWN.isdisjoint(kinds):
        for node in ordered:
            if node.reading.kind == OTHER:
                node.reading.kind = FUNCTION  # nothing here is an agent's: what was traced are functions
    # Children first, for `holds` goes upwards.
    for node in reversed(ordered):
        node.holds = node.reading.kind in STEPS or any(child.holds for child in node.children)
    if NODE in kinds:
        for node in ordered:
            _promote(node)
    for node in ordered:
        if node.reading.kind == AGENT and node.into is None and not node.members:
            _merge_run(node)
    # After the runs: a call without a parent is given to the one agent that is left at the top.
    _merge_calls(ordered)
    _merge_twins(ordered)
    for node in ordered:
        if node.into is None and node.reading.kind in STEPS and not node.members:
            node.members = [node]
    return ordered


def steps(nodes: Iterable[Node]) -> list[Node]:
    """The steps among `nodes`, in the order in which they began."""
    step_nodes = [node for node in nodes if node.into is None and node.reading.kind in STEPS]
    depths: dict[int, int] = {}
    places = []
    for node in step_nodes:  # parents come before children
        above = node.inside = _enclosing(node)
        depth = depths[id(node)] = 0 if above is None else depths.get(id(above), 0) + 1
        # A clock of milliseconds, as a browser's or Node's, lets a quick tool and the call after it begin at
        # once: what also ended then was first.
        places.append((node.started, depth, node.ended, node.order, node))
    places.sort(key=_PLACE)
    return [place[4] for place in places]


_PLACE = itemgetter(0, 1, 2, 3)


def _enclosing(step: Node) -> Node | None:
    """The step that `step` happened in."""
    top = step
    if len(step.members) > 1:
        # A gateway's record that was matched by its answer's id stands nowhere in the tree.
        places = [member for member in step.members if not member.is_call] or [step]
        top = min(places, key=lambda member: member.depth)
    ancestor = top.parent
    while ancestor is not None:
        enclosing = ancestor.step
        if enclosing is not None and enclosing is not step:
            return enclosing
        ancestor = ancestor.parent
    return None


def let_go(nodes: Iterable[Node]) -> None:
    """Cut what links the nodes of a run that was read: circles wait for the garbage collector, which looks at
    the whole process to find them."""
    for node in nodes:
        node.parent = node.into = node.inside = None
        node.children, node.members = [], []


def given_calls(step: Node) -> list[Message]:
    """The calls that the graph nodes around a tool were given, nearest first."""
    calls: list[Message] = []
    for node in step.above():
        if node.step is not None:
            break
        calls += node.reading.calls
    return calls


def _link(nodes: list[Node]) -> None:
    """Find parents; where they form a circle, cut it."""
    by_id = {node.content.span[:2]: node for node in nodes if not node.is_call}
    ordered = True
    for node in nodes:
        trace, _, above = node.content.span[:3]
        if above and (parent := by_id.get((trace, above))) is not None:
            node.parent = parent
            ordered = ordered and parent.order < node.order
    if not ordered:
        _cut_circles(nodes)
    for node in nodes:
        if node.parent is not None:
            node.parent.children.append(node)


def _cut_circles(nodes: list[Node]) -> None:
    """Where each parent came before its children there is none."""
    done: set[int] = set()
    for node in nodes:
        path: dict[int, Node] = {}
        ancestor: Node | None = node
        while ancestor is not None and id(ancestor) not in done:
            if id(ancestor) in path:
                ancestor.parent = None
                break
            path[id(ancestor)] = ancestor
            ancestor = ancestor.parent
        done.update(path)


def _downward(nodes: list[Node]) -> list[Node]:
    """Parents before their children."""
    ordered = [node for node in nodes if node.parent is None]
    for node in ordered:  # grows while it is walked
        for child in node.children:
            child.depth = node.depth + 1
        ordered.extend(node.children)
    return ordered


def _promote(node: Node) -> None:
    """A chain with no agent or chain around it is the run; so is one that runs inside a tool."""
    if node.reading.kind != NODE:
        return
    for ancestor in node.above():
        kind = ancestor.reading.kind
        if kind == TOOL and any(child.holds for child in node.children):
            break
        if kind in (AGENT, NODE, LLM, TOOL):
            return
    node.reading.kind = AGENT
    node.reading.named = False


def _merge_run(top: Node) -> None:
    """Follow a run's containers down to the agent that they are."""
    chain = [top]
    while True:
        inner = [child for child in chain[-1].children if child.holds or child.reading.kind == NODE]
        if len(inner) != 1 or not _same_run(chain[-1], inner[0]):
            break
        chain.append(inner[0])
    names = next((node for node in chain if node.reading.named), top)
    names.members = [names, *(node for node in chain if node is not names)]
    for node in names.members[1:]:
        node.into = names
        node.reading.kind = AGENT


def _same_run(outer: Node, inner: Node) -> bool:
    outer_reading, inner_reading = outer.reading, inner.reading
    if inner_reading.kind == NODE:
        return inner.content.span.name == outer.content.span.name or inner_reading.name == outer_reading.name
    if inner_reading.kind != AGENT:
        return False
    container = bool(outer_reading.extra.get("workflow")) or bool(inner_reading.extra.get("workflow"))
    # Two instrumentors that saw one agent; within one of them an agent that runs itself again is another run.
    twins = outer.content.scope != inner.content.scope
    return not outer_reading.named or ((container or twins) and outer_reading.name == inner_reading.name)


def _merge_calls(ordered: list[Node]) -> None:
    """A gateway's record joins the model call it was part of, or stands as a step where it happened."""
    calls = [node for node in ordered if node.is_call]
    if not calls:
        return
    answered: dict[str, list[Node]] = {}
    for node in ordered:
        if node.reading.kind == LLM and node.reading.response_id:
            answered.setdefault(node.reading.response_id, []).append(node)
    tops = [
        node for node in ordered if node.step is node and node.reading.kind == AGENT and not _inside(node)
    ]
    joined: dict[int, tuple[Node, list[Node]]] = {}
    for call in calls:
        nearest = next((step for node in call.above() if (step := node.step) is not None), None)
        target = nearest if nearest is not None and nearest.reading.kind == LLM else None
        target = target or _same_answer(call, answered.get(call.reading.response_id or "", ()))
        if target is not None:
            target = target.step or target
            joined.setdefault(id(target), (target, []))[1].append(call)
        elif call.parent is None and len(tops) == 1 and _contains(tops[0], call):
            # One run, one agent, and the call came while it ran: it is the agent's.
            call.parent = tops[0]
            tops[0].children.append(call)
    for target, several in joined.values():
        target.members = target.members or [target]
        for call in _attempts(target, several):
            target.members.append(call)
            call.into = target


def _attempts(target: Node, calls: list[Node]) -> list[Node]:
    """The calls inside a model call's span that are that call: one that was answered, and all that failed.

    A span around several calls that were each answered (a loop that an instrumentor shows as one) is the
    last of them, or the one whose answer it names; the others are steps inside it.
    """
    answered = [call for call in calls if call.reading.error is None and call.reading.output is not None]
    if len(answered) < 2:
        return calls
    named = [call for call in answered if call.reading.response_id == target.reading.response_id]
    chosen = max(named or answered, key=lambda call: call.content.span.ended)
    return [call for call in calls if call is chosen or call not in answered]


def _same_answer(call: Node, others: Sequence[Node]) -> Node | None:
    """The span of a model call whose answer had the same id; some servers give every answer one id."""
    spans = [node for node in others if not node.is_call]
    if len(spans) > 1 or len(others) > 2:
        spans = [node for node in spans if _contains(node, call)]
    return spans[0] if len(spans) == 1 else None


def _inside(node: Node) -> bool:
    return any(ancestor.step is not None and ancestor.step is not node for ancestor in node.above())


def _contains(outer: Node, inner: Node) -> bool:
    outer_span, inner_span = outer.content.span, inner.content.span
    if outer.members:
        return outer.started <= inner_span.started and inner_span.ended <= outer.ended
    return outer_span.started <= inner_span.started and inner_span.ended <= outer_span.ended


def _merge_twins(ordered: list[Node]) -> None:
    """Two instrumentors saw one thing: a tool in the same tool, a model call in a model call."""
    inside: dict[int, list[Node]] = {}
    around: dict[int, Node] = {}
    for node in ordered:
        if node.reading.kind not in (TOOL, LLM) or node.into is not None or node.is_call:
            continue
        above, ancestor = None, node.parent
        while ancestor is not None and (above := ancestor.step) is None:
            ancestor = ancestor.parent
        if above is not None and above.reading.kind == node.reading.kind and _alike(above, node):
            inside.setdefault(id(above), []).append(node)
            around[id(above)] = above
    for key, twins in inside.items():
        # Two inside one are two calls that something wraps, such as a retry or a loop.
        if len(twins) == 1:
            target = around[key].step or around[key]
            _merge(target, twins[0])
    by_call: dict[tuple[int, str, str], Node] = {}
    for node in ordered:
        if node.reading.kind != TOOL or node.into is not None or not (id_ := node.reading.tool_call_id):
            continue
        key_ = (id(node.parent), node.reading.name, id_)
        first = by_call.setdefault(key_, node)
        if first is not node and (_contains(first, node) or _contains(node, first)):
            _merge(first, node)


def _merge(target: Node, node: Node) -> None:
    target.members = [*(target.members or [target]), *(node.members or [node])]
    for member in node.members or [node]:
        member.into = target


def _alike(outer: Node, inner: Node) -> bool:
    if outer.reading.kind == LLM:
        return True
    outer_reading, inner_reading = outer.reading, inner.reading
    ids = {outer_reading.tool_call_id, inner_reading.tool_call_id} - {None}
    return outer_reading.name == inner_reading.name and len(ids) < 2
