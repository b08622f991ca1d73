"""The documentation cannot lie: what it shows exists, and what exists it shows."""

import importlib.util
import re
import shlex
import subprocess
from pathlib import Path

from gpuadvisor import errors
from gpuadvisor.cli import build_parser, joined
from gpuadvisor.tuners.knobs import load_knobs

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "benchmarks" / "README.md"]
NAMED = r"`((?:advisor|benchmarks|collectors|docs|rules|storage|tests|tui|tuners)/[\w./]+)`"
"""A file or folder of ours, as a page names it."""
PROGRAMS = {"gpuadvisor", ".venv/bin/gpuadvisor"}
SIGNALLED = {129, 131, 130, 141, 143}
"""128 and the number of SIGHUP, SIGINT, SIGQUIT, SIGPIPE and SIGTERM."""


def generator():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shell_lines(page):
    """Return the lines of a page's shell blocks, without prompts, joined where they go on."""
    for block in re.findall(r"^```(?:shell|bash|console)\n(.*?)^```", page, re.DOTALL | re.M):
        for line in block.replace("\\\n", " ").splitlines():
            yield line.removeprefix("$ ")


def commands(line):
    """Return the words of each command of a shell line that starts gpuadvisor."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    words, found = [], []
    for word in [*lexer, ";"]:
        if set(word) <= set("|&;<>"):
            found.append(words)
            words = []
        else:
            words.append(word)
    return [words for words in found if words and words[0] in PROGRAMS]


def parses(parser, words):
    own = words[1 : words.index("--")] if "--" in words else words[1:]
    try:
        args = parser.parse_args(joined(parser, own))
    except errors.UsageError:
        return False
    return "--" not in words or args.takes_rest


def test_every_command_that_is_shown_parses():
    parser = build_parser()
    shown = [
        (path.name, words)
        for path in PAGES
        for line in shell_lines(path.read_text("utf-8"))
        for words in commands(line)
    ]
    assert len(shown) > 100
    wrong = [f"{name}: {shlex.join(words)}" for name, words in shown if not parses(parser, words)]
    assert wrong == []


def test_a_command_that_is_none_does_not_parse():
    assert not parses(build_parser(), ["gpuadvisor", "tune", "train.py", "--budgte", "5m"])


def test_what_is_generated_is_current():
    pages = generator().pages()
    old = [path for path, text in pages.items() if path.read_text("utf-8") != text]
    assert old == [], "run `make docs`"


def test_the_readme_shows_every_command_and_every_argument_has_help():
    parsers = generator().subcommands()
    assert [name for name in parsers if f"gpuadvisor {name}" not in README] == []
    bare = [(p.prog, a.dest) for p in parsers.values() for a in p._actions if not a.help]
    assert bare == []


def test_every_exit_status_is_documented():
    page = (ROOT / "docs" / "commands.md").read_text("utf-8")
    table = page.partition("| exit status |")[2].partition("\n\n")[0]
    documented = {int(number) for row in table.splitlines() for number in leading_numbers(row)}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    raised = {kind.exit_code for kind in kinds if issubclass(kind, errors.AdvisorError)}
    assert documented == {0} | raised | SIGNALLED


def leading_numbers(row):
    return re.findall(r"\d+", row.split("|")[1]) if row.startswith("|") else []


def test_every_knob_is_explained():
    page = (ROOT / "docs" / "knobs.md").read_text("utf-8")
    assert [name for name in load_knobs() if f"\n### {name}\n\n" not in page] == []


def test_links_and_named_files_exist():
    targets = [
        (path, target)
        for path in PAGES
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text("utf-8"))
    ]
    local = [path.parent / target for path, target in targets if "://" not in target]
    assert [str(target) for target in local if not target.exists()] == []


def test_files_that_contributors_are_sent_to_exist():
    assert [name for name in re.findall(NAMED, CONTRIBUTING) if not (ROOT / name).exists()] == []


def test_every_make_target_that_is_shown_exists():
    targets = sorted(set(re.findall(r"(?:^|`)make ([a-z]+)\b", README, re.M)))
    dry = subprocess.run(
        ["make", "--dry-run", *targets], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert dry.returncode == 0, dry.stderr


def test_the_command_that_ci_runs_stands_in_the_readme():
    block = README.partition("<!-- CI runs this -->\n```shell\n")[2].partition("\n```")[0]
    assert block == "make test"


def test_the_readme_stays_short():
    """The first screen and how to set it up, and 200 lines for all the rest."""
    assert len(README.partition("## Use it\n")[2].splitlines()) < 200
