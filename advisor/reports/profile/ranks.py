"""All ranks of a run beside each other: a table on the terminal, in Markdown and on the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gpuadvisor.reports import figures
from gpuadvisor.reports.document import Column, Section, Table
from gpuadvisor.reports.json_fields import fields
from gpuadvisor.reports.render_text import Line, table_lines

if TYPE_CHECKING:
    from gpuadvisor.rules.facts.ranks import Rank, Ranks

APART_NS = 1_000_000
"""Difference of two ranks' clocks that is said. [own]"""
_NAME, _SHARE, _WORDS = 14, 12, 14
_FIELDS = (
    "name device run_ns busy_ns idle_ns computing_ns communicating_ns exposed_ns waiting_ns"
    " transferring_ns clock_apart_ns"
)
"""Fields of `rules.facts.ranks.Rank` that JSON has for each rank; times in nanoseconds."""


def ranks_section(ranks: Ranks) -> Section:
    """Return the ranks under a title, with a sentence that says what they show."""
    return Section.led("Ranks", ranks_sentence(ranks), _table(ranks))


def ranks_lines(ranks: Ranks) -> Iterator[Line]:
    """Yield the same for the terminal."""
    yield Line("")
    yield Line(f"Ranks: {ranks_sentence(ranks)}", "bold")
    yield from (Line(line, is_command=True) for line in table_lines(_table(ranks)))


def ranks_sentence(ranks: Ranks) -> str:
    """Return who is here, and who comes late."""
    here = figures.count(len(ranks.ranks), "rank")
    if ranks.absent:
        here += f" of {ranks.world_size}"
    if ranks.unmatched is not None:
        return f"{here}. Who comes late is not known: {ranks.unmatched}."
    count = figures.count(ranks.collectives, "collective")
    if not ranks.late:
        return f"{here}, which meet in {count}."
    late = ranks.late[0]
    most = figures.nanoseconds(late.longest_ns)
    return (
        f"{here}, which meet in {count}. {begun(ranks.ranks[late.place].name)} comes last to"
        f" {late.last:,} of {late.collectives:,}, up to {most} after the first."
    )


def begun(words: str) -> str:
    """Return words with a capital at the begin."""
    return words[:1].upper() + words[1:]


def ranks_json(ranks: Ranks) -> dict[str, Any]:
    """Return the ranks as values for JSON."""
    late = {each.place: each for each in ranks.late}
    every = []
    for place, each in enumerate(ranks.ranks):
        lateness = late.get(place)
        last_of = lateness.collectives if lateness else ranks.collectives
        every.append({
            **fields(each, _FIELDS),
            "collectives": None if ranks.unmatched else last_of,
            "collectives_last": None if ranks.unmatched else (lateness.last if lateness else 0),
            "latest_ns": None if ranks.unmatched else (lateness.longest_ns if lateness else 0),
        })  # fmt: skip
    return {
        "world_size": ranks.world_size,
        "collectives": ranks.collectives,
        "unmatched": ranks.unmatched,
        "ranks": every,
    }


def _table(ranks: Ranks) -> Table:
    late = {each.place: each for each in ranks.late}

    def share(name: str) -> Any:
        def cell(row: tuple[int, Rank]) -> str:
            time = getattr(row[1], name)
            return figures.NOT_MEASURED if time is None else figures.percent(row[1].share(time))

        return cell

    def last(row: tuple[int, Rank]) -> str:
        if ranks.unmatched is not None:
            return figures.NOT_MEASURED
        found = late.get(row[0])
        return "0" if found is None else f"{found.last:,} of {found.collectives:,}"

    def latest(row: tuple[int, Rank]) -> str:
        found = late.get(row[0])
        return "" if found is None else figures.nanoseconds(found.longest_ns)

    unknown = _WORDS if ranks.unmatched is not None else _SHARE
    wide = {"Exposed comm.": _WORDS, "Waiting": unknown, "Transfer": unknown}
    columns = [
        Column("Rank", lambda row: row[1].name, width=_NAME),
        Column("Time", lambda row: figures.nanoseconds(row[1].run_ns), width=_SHARE),
        *(
            Column(title, share(name), width=wide.get(title, _SHARE))
            for title, name in (
                ("Busy", "busy_ns"), ("Idle", "idle_ns"), ("Computing", "computing_ns"),
                ("Exposed comm.", "exposed_ns"), ("Waiting", "waiting_ns"),
                ("Transfer", "transferring_ns"),
            )
        ),
        Column("Last", last, width=unknown),
        Column("By up to", latest, width=_SHARE),
    ]  # fmt: skip
    return Table(list(enumerate(ranks.ranks)), columns, notes=tuple(_notes(ranks)))


def _notes(ranks: Ranks) -> Iterator[str]:
    yield (
        "Shares are of each rank's own time. Exposed communication has no compute beside it;"
        " waiting is its part before the last rank has come, transfer the part after that."
    )
    apart = [each.clock_apart_ns for each in ranks.ranks if each.clock_apart_ns is not None]
    most = max(map(abs, apart), default=0)
    if most >= APART_NS:
        yield (
            f"The ranks' clocks differ by up to {figures.nanoseconds(most)}: what is said here is"
            " of one clock, which the collectives tell."
        )
