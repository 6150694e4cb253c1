"""What a Version was made from, named in it: the lineage that erasure and retention follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..types import Bundle, Group


def learned_from(groups: Sequence[Group], made: Bundle, parent: Bundle) -> Bundle:
    """A Bundle whose new Versions name what they were made from, in `meta["data"]`: ids of trajectories.

    They are those of the groups and those that their tasks were made of, with what the Version before was
    made from.  Erasing a person, and retention, find by it which Versions learned from what
    (`Store.erase`).  It is no part of a Version's id.
    """
    sources = {one.id for group in groups for one in group.trajectories}
    for group in groups:
        named = group.task.meta.get("trajectories")
        sources.update(one for one in named or () if isinstance(one, str))
    if not sources:
        return made
    found = []
    for name, version in made.items():
        before = parent.get(name)
        if before is None or before.id != version.id:
            known = [meta.get("data") for meta in (version.meta, before.meta if before else {})]
            data = sources.union(*(each for each in known if isinstance(each, list | tuple)))
            version = replace(version, meta={**version.meta, "data": sorted(data)})
        found.append(version)
    return Bundle(found)
