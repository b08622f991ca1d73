"""The page of stored profiles: what each shows, and what is wrong with its run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from gpuadvisor.tui.watch.cells import Style
from gpuadvisor.tui.watch.listed import Entry, Listed

if TYPE_CHECKING:
    from rich.console import Console


class Profiles(Listed):
    """All profiles of this user, the newest first."""

    KEY = "5"
    NAME = "profiles"
    ABOUT = "Stored profiles, and what the rules find in each."
    TITLES = ("Profile", "Stored", "Of", "Recorded by", "Took", "Rank")
    EMPTY = (
        "No profile is stored yet: `gpuadvisor profile script.py` records one, "
        "`gpuadvisor import FILE` adds a trace."
    )

    def entries(self) -> Sequence[Entry]:
        from gpuadvisor.reports import figures
        from gpuadvisor.storage.home import database
        from gpuadvisor.storage.profiles.library import open_profiles

        if not database().exists():
            return []
        with open_profiles() as profiles:
            records = profiles.list()
        found = []
        for each in records:
            rank = "" if each.rank is None else f"{each.rank} of {each.world_size or '?'}"
            stored = datetime.fromisoformat(each.imported).astimezone().strftime("%m-%d %H:%M")
            cells = (each.name, stored, each.path, each.source,
                     figures.nanoseconds(each.duration_ns), rank)  # fmt: skip
            found.append(Entry(each.name, tuple((cell, Style.PLAIN) for cell in cells), each.id))
        return found

    def tell(self, key: str, console: Console) -> None:
        from gpuadvisor.profiling.diagnosing import diagnose_target
        from gpuadvisor.reports.diagnosis.document import print_diagnosis

        print_diagnosis(console, diagnose_target(key, ()))

    def html(self, key: str) -> tuple[str, str]:
        from gpuadvisor.printable import file_name
        from gpuadvisor.profiling.diagnosing import profile_report
        from gpuadvisor.profiling.resolving import resolve_profile
        from gpuadvisor.reports.profile.document import profile_html

        return file_name(key, "profile"), profile_html(profile_report(resolve_profile(key)))


PAGE = Profiles
