"""The lines that make a plan's settings permanent in the user's own code."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from gpuadvisor.domain.knobs import ARGUMENT_PREFIX, Settings, Snippet
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuning.arguments import flag_of


def permanent_snippets(settings: Settings, knobs: Mapping[str, Knob]) -> tuple[Snippet, ...]:
    """Return the lines for each setting, in the settings' order.

    Knobs that this version does not know are left out: a study may be from another one.
    """
    snippets = []
    for name, value in settings.items():
        if name.startswith(ARGUMENT_PREFIX):
            option = flag_of(name.removeprefix(ARGUMENT_PREFIX)), str(value)
            line = shlex.join(option)
            snippets.append(Snippet(name, "on the script's command line", line, "shell"))
        elif name in knobs:
            knob = knobs[name]
            in_shell = knob.snippet_language == "shell"
            where = f"{knob.title}, in the shell before the script" if in_shell else knob.title
            snippets.append(Snippet(name, where, knob.snippet(value), knob.snippet_language))
    return tuple(snippets)
