"""A run that is forked is what a fresh process would be, and leaves as little behind."""

import json
import os
import signal
import subprocess
import sys
import sysconfig
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from gpuadvisor.collectors.script import run_processes, templates
from gpuadvisor.collectors.script.request import Command, Limits, RunRequest
from gpuadvisor.collectors.script.runner import (
    begin_template,
    run_script,
    start_common_template,
    start_template,
)
from gpuadvisor.collectors.script.specification import Specification
from gpuadvisor.collectors.script.templates import NoTemplateError
from gpuadvisor.domain.device import Device

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forked on Linux only")

LIBRARY = Path(sysconfig.get_path("stdlib"))
LIMITS = Limits(startup_s=30, idle_s=30, total_s=60)


def request(folder, *args, is_module=False, **options):
    name = "script" if is_module else "script.py"
    command = Command(sys.executable, name, args, is_module, str(folder))
    return RunRequest(command, Specification(seed=1, **options), Device("cpu", 0, "cpu"), LIMITS)


def write(folder, text):
    (folder / "script.py").write_text(textwrap.dedent(text))


def notes(folder, *modules, changed=None, path=sys.path, later=None):
    """Write what a run would have noted: that it imports these modules of the library."""
    first = {"modules": modules, "path": [*path], "main": "script.py", "changed": changed or {}}
    file = folder / "notes.json"
    file.write_text(json.dumps([first] if later is None else [first, later]))
    return file


FRACTIONS = ("fractions", str(LIBRARY / "fractions.py"))


@pytest.fixture
def begin():
    """`start_template`, and its end."""
    started = []

    def begin(wanted, imports):
        started.append(start_template(wanted, imports))
        return started[-1]

    yield begin
    for template in started:
        template.close()
    assert not templates.living


STATE = """
    import atexit, gc, json, os, resource, signal, subprocess, sys, threading, time
    imported = "fractions" in sys.modules
    import random
    names = sorted(name for name in os.environ if not name.startswith("GPUADVISOR_"))
    state = {
        "children": open(f"/proc/self/task/{os.getpid()}/children").read(),
        "argv": sys.argv, "original": sys.orig_argv, "path": sys.path, "flags": list(sys.flags),
        "names": [__name__, __file__, str(__spec__ and __spec__.name), sys.executable],
        "main": sorted(name for name in vars(sys.modules["__main__"]) if name.startswith("__")),
        "environment": {name: os.environ[name] for name in names},
        "exported": sorted(
            word.partition("=")[0]
            for word in subprocess.check_output("env", text=True).splitlines()
        ),
        "folder": os.getcwd(), "input": sys.stdin.read(), "descriptors": sorted(
            (int(n), os.path.exists(f"/proc/self/fd/{n}") and os.stat(int(n)).st_mode >> 12)
            for n in os.listdir("/proc/self/fd")
        ),
        "terminal": [os.isatty(n) for n in range(3)],
        "stdout": [sys.stdout.line_buffering, sys.stdout.write_through, sys.stdout.encoding],
        "stderr": [sys.stderr.line_buffering, sys.stderr.write_through, sys.stderr.errors],
        "leads": [os.getpgrp() == os.getpid(), os.getsid(0) == os.getpid()],
        "parent": os.getppid(), "cores": sorted(os.sched_getaffinity(0)), "nice": os.nice(0),
        "limits": [resource.getrlimit(n) for n in range(16)],
        "umask": os.umask(0o22),
        "signals": [str(signal.getsignal(n)) for n in sorted(signal.valid_signals())
                    if n not in (signal.SIGKILL, signal.SIGSTOP)],
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "threads": [t.name for t in threading.enumerate()], "is_main": threading.current_thread()
        is threading.main_thread(), "tasks": len(os.listdir("/proc/self/task")),
        "random": random.random(), "hash": hash("text"), "gc": [gc.isenabled(), gc.get_threshold()],
        "finders": [str(type(each)) for each in sys.meta_path], "hook": sys.excepthook.__name__,
        "settings": [sys.getrecursionlimit(), sys.getswitchinterval(), sys.getdlopenflags()],
        "command": open("/proc/self/cmdline").read(), "time": time.process_time() < 5,
    }
    print(json.dumps([imported, state]))
    atexit.register(print, "at its end")
"""


@pytest.mark.parametrize("is_module", [False, True])
def test_a_fork_is_what_a_fresh_process_is(tmp_path, begin, is_module, monkeypatch):
    monkeypatch.setenv("GIVEN", "1")
    write(tmp_path, STATE)
    wanted = request(tmp_path, "--a", "b c", is_module=is_module, cores=(0,))
    fresh = run_script(wanted)
    template = begin(wanted, notes(tmp_path, FRACTIONS))
    for _ in range(2):
        forked = run_script(replace(wanted, template=template))
        assert (fresh.forked, forked.forked) == (False, True)
        (fresh_had, fresh_state), (had, state) = (
            json.loads(each.output.splitlines()[0]) for each in (fresh, forked)
        )
        assert (fresh_had, had) == (False, True)
        assert state == fresh_state
        assert forked.output.splitlines()[1:] == ["at its end"]
        assert (forked.state, forked.reason) == (fresh.state, fresh.reason)


@pytest.mark.parametrize("is_module", [False, True])
def test_a_fork_of_another_version_is_what_a_fresh_process_of_it_is(tmp_path, is_module):
    versions = []
    for name in ("base", "head"):
        folder = tmp_path / name
        (folder / "src").mkdir(parents=True)
        (folder / "src" / "package.py").write_text(f"version = {name!r}")
        write(folder, STATE + "    import package; print(package.version, package.__file__)\n")
        wanted = request(folder, name, is_module=is_module)
        path = os.pathsep.join([str(folder / "src"), str(tmp_path / name), "relative"])
        versions.append(replace(wanted, environment={"PYTHONPATH": path, "GIVEN": "1"}))
    if not is_module:
        (tmp_path / "head" / "script.py").rename(tmp_path / "head" / "renamed.py")
        renamed = replace(versions[1].command, script="./renamed.py")
        versions[1] = replace(versions[1], command=renamed)
    template = start_common_template(versions, json.loads(notes(tmp_path, FRACTIONS).read_text()))
    try:
        for wanted in (*versions, versions[0]):
            fresh, forked = run_script(wanted), run_script(replace(wanted, template=template))
            assert (fresh.forked, forked.forked) == (False, True)
            states = []
            for run in (fresh, forked):
                had, state = json.loads(run.output.splitlines()[0])
                assert had is run.forked
                state.pop("command")  # the kernel shows the template's
                states.append(state)
            assert states[0] == states[1]
            assert forked.output.splitlines()[1:] == fresh.output.splitlines()[1:]
            assert f"\n{wanted.command.args[0]} " in forked.output
    finally:
        template.close()


def test_a_package_that_is_installed_from_a_versions_folder_is_never_imported_ahead(tmp_path):
    libraries = tmp_path / "site-packages"
    libraries.mkdir()
    (libraries / "torch.py").touch()
    folders = [tmp_path / "base", tmp_path / "head"]
    versions, imports = [], []
    for folder in folders:
        (folder / "src" / "package.dist-info").mkdir(parents=True)  # taken for a library by that
        (folder / "src" / "package.py").write_text(f"version = {folder.name!r}")
        write(
            folder,
            "import sys; had = {'torch', 'package'} & {*sys.modules}\n"
            "import package, torch; print(had, package.version)",
        )
        wanted = request(folder)
        path = os.pathsep.join(map(str, (folder / "src", libraries)))
        versions.append(replace(wanted, environment={"PYTHONPATH": path}))
        imports.append(folder / "imports.json")
        noting = replace(wanted.specification, notes=str(imports[-1]))
        run_script(replace(versions[-1], specification=noting))
    assert "package" in dict(json.loads(imports[0].read_text())[0]["modules"])
    phases = templates.in_common([*map(templates.noted, imports)], [*map(str, folders)])
    template = start_common_template(versions, phases)
    try:
        printed = [run_script(replace(each, template=template)).output for each in versions]
    finally:
        template.close()
    assert printed == ["{'torch'} base", "{'torch'} head"]


def test_one_that_was_begun_serves_where_it_imports_what_all_do(tmp_path):
    write(tmp_path, "import sys; print('fractions' in sys.modules)")
    wanted = request(tmp_path)
    phases = templates.noted(notes(tmp_path, FRACTIONS))
    begun = begin_template(wanted, phases)
    template = start_common_template([wanted], phases, begun)
    try:
        assert template is begun
        assert "True" in run_script(replace(wanted, template=template)).output
    finally:
        template.close()
    begun = begin_template(wanted, templates.noted(notes(tmp_path)))
    template = start_common_template([wanted], phases, begun)
    try:
        assert template is not begun
        assert begun.process.returncode is not None
        assert "True" in run_script(replace(wanted, template=template)).output
    finally:
        template.close()


ENDS = [
    "import sys; sys.exit(3)",
    "raise ValueError('no data')",
    "import ctypes; ctypes.string_at(0)",
    "import os; os._exit(7)",
    "input('Go on? ')",
]


def test_each_end_is_told_as_of_a_fresh_process(tmp_path, begin):
    write(tmp_path, "")
    wanted = request(tmp_path)
    template = begin(wanted, notes(tmp_path, FRACTIONS))
    for text in ENDS:
        write(tmp_path, text)
        fresh, forked = run_script(wanted), run_script(replace(wanted, template=template))
        assert forked.forked
        for part in ("state", "reason", "place", "output"):
            assert getattr(forked, part) == getattr(fresh, part), text


HIDING = """
    import os, subprocess, sys, time
    sleep = "import os, time; os.environ.clear(); print('there', flush=True); time.sleep(60)"
    subprocess.Popen([sys.executable, "-c", sleep], start_new_session=True)
    subprocess.Popen([sys.executable, "-c", sleep], env={})
    if not os.fork():
        os.setsid()
        if os.fork():
            os._exit(0)
        time.sleep(60)
    if not os.fork():
        time.sleep(60)
    open("pids", "w").write(" ".join(map(str, range(3))))
    time.sleep(0.5)
    print("done")
"""


def test_nothing_of_a_forked_run_is_left_but_the_template(tmp_path, begin):
    write(tmp_path, HIDING)
    wanted = request(tmp_path)
    template = begin(wanted, notes(tmp_path, FRACTIONS))
    for _ in range(2):
        outcome = run_script(replace(wanted, template=template))
        assert outcome.forked and "done" in outcome.output
        assert [each.pid for each in psutil.Process().children(recursive=True)] == [
            template.process.pid
        ]


DRIVER = """
import sys
from dataclasses import replace
from pathlib import Path
from tests.unit.collectors.script.test_templates import request
from gpuadvisor.collectors.script.runner import run_script, start_template

folder = Path(sys.argv[1])
wanted = request(folder)
template = start_template(wanted, folder / "notes.json")
try:
    print(template.process.pid, flush=True)
    run_script(replace(wanted, template=template))
finally:
    template.close()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_when_gpuadvisor_is_ended(tmp_path, number):
    write(tmp_path, "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(600)")
    notes(tmp_path, FRACTIONS)
    root = Path(__file__).parents[4]
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=root,
    )
    template = psutil.Process(int(driver.stdout.readline()))
    run = psutil.Process(int(wait_for(lambda: (tmp_path / "pid").read_text())))
    driver.send_signal(number)
    assert driver.wait(60) != 0
    driver.stdout.close()
    wait_for(lambda: not any(map(run_processes._is_alive, (template, run))))


def wait_for(found, seconds=60.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if answer := found():
                return answer
        except (OSError, psutil.Error):
            pass
        time.sleep(0.02)
    raise AssertionError("it did not happen")


def test_a_run_that_is_given_up_is_killed(tmp_path, begin):
    write(tmp_path, "import time; time.sleep(600)")
    wanted = replace(request(tmp_path), limits=Limits(startup_s=0.5, idle_s=1, total_s=1))
    template = begin(replace(wanted, limits=LIMITS), notes(tmp_path, FRACTIONS))
    outcome = run_script(replace(wanted, template=template))
    assert outcome.forked and outcome.reason.startswith("no step within")
    assert len(psutil.Process().children(recursive=True)) == 1


def test_a_run_that_begins_in_another_way_is_fresh(tmp_path, begin):
    write(tmp_path, "import os; print(os.environ.get('A'), sorted(os.sched_getaffinity(0)))")
    wanted = request(tmp_path)
    template = begin(wanted, notes(tmp_path, FRACTIONS))
    wanted = replace(wanted, template=template)
    others = (
        replace(wanted, environment={"A": "1"}),
        replace(wanted, command=replace(wanted.command, args=("--batch-size", "8"))),
        replace(wanted, specification=replace(wanted.specification, cores=(0,))),
    )
    fresh = [run_script(other) for other in others]
    assert [outcome.forked for outcome in fresh] == [False] * 3
    assert fresh[0].output.startswith("1 ") and fresh[2].output == "None [0]"


def test_runs_are_fresh_when_the_template_has_died(tmp_path, begin):
    write(tmp_path, "print('it ran')")
    wanted = request(tmp_path)
    template = begin(wanted, notes(tmp_path, FRACTIONS))
    template.process.kill()
    outcome = run_script(replace(wanted, template=template))
    assert (outcome.forked, outcome.output) == (False, "it ran")


def library(folder, text):
    """Make a module as of an installed package, and return the notes of a run that imports it."""
    packages = folder / "site-packages"
    packages.mkdir(exist_ok=True)
    (packages / "made_up.py").write_text(textwrap.dedent(text))
    return "made_up", str(packages / "made_up.py")


def native(name):
    """A thread of C that no Python knows, of this name."""
    return f"""
        import ctypes, os, time
        before = set(os.listdir("/proc/self/task"))
        libc = ctypes.CDLL(None)
        libc.pthread_create(ctypes.byref(ctypes.c_ulong()), None, libc.pause, None)
        while not (begun := set(os.listdir("/proc/self/task")) - before):
            time.sleep(0.001)
        with open(f"/proc/self/task/{{begun.pop()}}/comm", "w") as file:
            file.write("{name}")
    """


UNFIT = [
    ("import threading, time; threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
     r"starts a thread \(Thread-1"),
    (native("counter"), r"starts a thread of native code \(counter\)"),
    (native("jemalloc_bg_thd") + native("counter"), r"native code \(counter\)"),
    ("file = open(__file__)", "leaves .*made_up.py open"),
    ("import subprocess; p = subprocess.Popen(['sleep', '9'])", "starts a process"),
    ("import sys; sys.path.append('/else')", "changes sys.path"),
    ("import script", "loads script, which is the script's own"),
    ("import nothing_of_this_name", "made_up cannot be imported ahead"),
    ("import sys; sys.exit(0)", "ended while it imported"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "why"), UNFIT)
def test_what_a_fork_would_lose_or_share_makes_no_template(tmp_path, text, why):
    write(tmp_path, "")
    module = library(tmp_path, text)
    found = notes(
        tmp_path, module, path=[str(tmp_path), str(tmp_path / "site-packages"), *sys.path]
    )
    with pytest.raises(NoTemplateError, match=why):
        start_template(request(tmp_path), found)
    assert not templates.living


def test_a_thread_that_gives_memory_back_is_no_loss(tmp_path, begin):
    """PyArrow's, which pandas imports; Python's own warning of it is no output of the script."""
    module = library(tmp_path, native("jemalloc_bg_thd"))
    write(tmp_path, "import os; print(len(os.listdir('/proc/self/task')))")
    found = notes(tmp_path, module, path=[str(tmp_path / "site-packages"), *sys.path])
    wanted = replace(request(tmp_path), environment={"PYTHONWARNINGS": "error"})
    outcome = run_script(replace(wanted, template=begin(wanted, found)))
    assert (outcome.forked, outcome.output) == (True, "1")


@pytest.mark.parametrize(
    ("metadata", "place", "fits"),
    [("other-1.0.dist-info", "target", True), ("", "target", False), ("a-1.dist-info", "", False)],
)
def test_packages_lie_where_their_metadata_does_unless_the_script_lies_there(
    tmp_path, begin, metadata, place, fits
):
    """As `pip install --target` puts them, found by PYTHONPATH."""
    write(tmp_path, "print('script')")
    target = tmp_path / place
    (target / metadata).mkdir(parents=True, exist_ok=True)
    (target / "other.py").write_text("")
    module = library(tmp_path, "import other")
    path = [str(target), str(tmp_path / "site-packages"), *sys.path]
    wanted, found = request(tmp_path), notes(tmp_path, module, path=path)
    if fits:
        assert run_script(replace(wanted, template=begin(wanted, found))).output == "script"
    else:
        with pytest.raises(NoTemplateError, match="loads other, which is the script's own"):
            start_template(wanted, found)


def test_what_imports_print_is_printed_by_each_run(tmp_path, begin):
    module = library(tmp_path, "import os; print('hello'); os.write(2, b'beware\\n')")
    write(tmp_path, "print('script')")
    found = notes(tmp_path, module, path=[str(tmp_path / "site-packages"), *sys.path])
    wanted = request(tmp_path)
    template = begin(wanted, found)
    for _ in range(2):
        outcome = run_script(replace(wanted, template=template))
        assert outcome.output.splitlines() == ["hello", "beware", "script"]


def test_a_library_that_loads_what_versions_may_have_of_their_own_is_not_imported_ahead(tmp_path):
    library = ("statistics", str(LIBRARY / "statistics.py"))
    (phase,) = json.loads(notes(tmp_path, library).read_text())
    write(tmp_path, "")
    with pytest.raises(NoTemplateError, match="loads decimal, of which versions have their own"):
        start_common_template([request(tmp_path)], [{**phase, "never": ["decimal"]}])
    assert not templates.living


def test_versions_that_begin_otherwise_are_not_forked_from_one_process(tmp_path):
    wanted = request(tmp_path)
    others = [
        replace(wanted, environment={"A": "1"}),
        replace(wanted, command=replace(wanted.command, python="/usr/bin/python3")),
        request(tmp_path, is_module=True),
    ]
    for other in others:
        with pytest.raises(NoTemplateError, match="environments of both versions differ"):
            start_common_template([wanted, other], [])


def test_what_the_script_sets_before_it_imports_torch_keeps_it_from_being_forked(tmp_path):
    found = notes(tmp_path, FRACTIONS, changed={"$OMP_NUM_THREADS": "3"})
    with pytest.raises(NoTemplateError, match=r"changes \$OMP_NUM_THREADS before it imports torch"):
        start_template(request(tmp_path), found)
    with pytest.raises(NoTemplateError, match="does not import torch"):
        start_template(request(tmp_path), tmp_path / "missing")


def test_runs_in_private_views_are_not_forked_whatever_they_could_note(tmp_path):
    wanted = replace(request(tmp_path), scratch=True)
    with pytest.raises(NoTemplateError, match="each run has a view of the file system of its own"):
        start_template(wanted, tmp_path / "notes.json")


def test_what_a_library_sets_itself_is_set_in_each_run(tmp_path, begin):
    module = library(tmp_path, "import os; os.environ['CACHE_OF_IT'] = 'here'")
    write(tmp_path, "import os; print(os.environ['CACHE_OF_IT'])")
    path = [str(tmp_path / "site-packages"), *sys.path]
    wanted = request(tmp_path)
    template = begin(wanted, notes(tmp_path, module, changed={"$CACHE_OF_IT": "here"}, path=path))
    assert run_script(replace(wanted, template=template)).output == "here"
    for changed in ({}, {"$CACHE_OF_IT": "there"}):
        with pytest.raises(NoTemplateError, match=r"it changes \$CACHE_OF_IT before it imports"):
            start_template(wanted, notes(tmp_path, module, changed=changed, path=path))


def test_what_a_library_that_imports_torch_itself_sets_after_that_is_set_ahead(tmp_path, begin):
    module = library(tmp_path, "import os; os.environ['CACHE_OF_IT'] = 'here'")
    write(tmp_path, "import os; print(os.environ['CACHE_OF_IT'])")
    path = [str(tmp_path / "site-packages"), *sys.path]
    wanted = request(tmp_path)
    for value, fits in (("here", True), ("there", False)):
        changed = {"$CACHE_OF_IT": value}
        later = {"modules": [], "path": path, "main": "script.py", "changed": changed}
        found = notes(tmp_path, module, path=path, later=later)
        if fits:
            outcome = run_script(replace(wanted, template=begin(wanted, found)))
            assert outcome.output == "here"
            continue
        with pytest.raises(NoTemplateError, match=r"it changes \$CACHE_OF_IT before it imports"):
            start_template(wanted, found)
