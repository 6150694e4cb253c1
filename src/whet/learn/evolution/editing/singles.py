"""Every single edit of a Python text: what one wrong operator, name, bound, call or line would take to mend.

The edits of `edits.py` are drawn; these are counted out, so that a search can try all of them (`sweep.py`).
The kinds follow the repair literature: the operators of mutation testing, the templates of PAR (Kim et al. 2013)
and TBar (Liu et al. 2019), and expressions and statements taken from elsewhere in the same function (the plastic
surgery hypothesis, Barr et al. 2014).  They differ in that nothing is learned from anybody's bugs: a kind has
a prior by how few alternatives it leaves, and is told apart by the blame of its line (`blame.py`).
"""

from __future__ import annotations

from ....repository.text import Span
from .corrections import NO_CORRECTIONS, Corrections
from .expressions import expression_edits
from .scopes import SingleEdit, scopes
from .source import PythonSource
from .statements import statement_edits


def single_edits(source: PythonSource, corrections: Corrections = NO_CORRECTIONS) -> list[SingleEdit]:
    """All single edits of what may change in a text, each change once, in the order of kind and place.

    Args:
        corrections: what failing rows suggest, beside what the function itself says.
    """
    edits: dict[tuple[tuple[Span, str], ...], SingleEdit] = {}
    for scope, places in scopes(source):
        scope.corrections = corrections
        for edit in (*expression_edits(source, places), *statement_edits(source, scope)):
            known = edits.get(edit.changes)
            if known is None or known.prior < edit.prior:
                edits[edit.changes] = edit
    return list(edits.values())
