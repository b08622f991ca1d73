"""gpuadvisor.toml: what it may say, and the sentence for what it may not."""

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuadvisor.daemon import configuration, configured_values
from gpuadvisor.daemon.configuration import AlertRule, Configuration, Prometheus, Retention
from gpuadvisor.domain.severity import Severity
from gpuadvisor.errors import UsageError

WHOLE = """
[daemon]
fast = true
fast_period = "200ms"
log_level = "debug"
group = "root"
admin_group = "root"
[prometheus]
address = "[::1]:9999"
token_file = "/etc/gpuadvisor/token"
dcgm_names = true
processes = true
host_metrics = false
[retention]
raw = "24h"
minutes = "30d"
command_lines = "program"
[[alert]]
name = "hot"
kinds = ["temperature", "throttling"]
severity = "error"
gpus = [0, "GPU-1"]
for = "30s"
again_after = "2h"
recovered = false
command = ["notify", "--loud"]
timeout = 5
[[alert]]
webhook = "https://example.org/hook"
"""


@pytest.fixture
def read(tmp_path):
    def of(content):
        path = tmp_path / "gpuadvisor.toml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return configuration.read(path)

    return of


def test_a_file_with_every_key(read, tmp_path):
    hot = AlertRule(
        "hot",
        ("temperature", "throttling"),
        Severity.ERROR,
        ("0", "GPU-1"),
        30.0,
        7200.0,
        False,
        ("notify", "--loud"),
        None,
        5.0,
    )
    told = AlertRule("alert 2", webhook="https://example.org/hook")
    assert read(WHOLE) == Configuration(
        tmp_path / "gpuadvisor.toml",
        0.2,
        "debug",
        "root",
        "root",
        Prometheus("::1:9999", "/etc/gpuadvisor/token", None, True, True, False),
        (hot, told),
        Retention(86400.0, 30 * 86400.0, "program"),
    )


def test_an_empty_file_is_the_defaults(read, tmp_path):
    assert read("") == Configuration(tmp_path / "gpuadvisor.toml")


def test_fast_has_a_default_period(read):
    assert read("[daemon]\nfast = true").fast_period_s == 0.1
    assert read('[daemon]\nfast_period = "0.2s"').fast_period_s is None


def test_the_endpoint_is_on_where_its_table_is(read):
    assert read("").prometheus is None
    assert read("[prometheus]").prometheus == Prometheus("127.0.0.1:9465")
    assert read("[prometheus]\nenabled = false").prometheus is None


TIME = 'such as "30s" or "1h"'
KINDS = 'an array of event kinds ("trottling" is none: did you mean `throttling`)'
WRONG = [
    ("[deamon]", "`deamon` is not a key here; did you mean `daemon`."),
    ("[daemon]\nfsat = true", "`daemon.fsat` is not a key here; did you mean `fast`."),
    (
        "[daemon]\nqqq = 1",
        "`daemon.qqq` is not a key here; there are `admin_group`, `fast`, `fast_period`, `group`,"
        " `log_level`.",
    ),
    (
        '[daemon]\ngroup = "no such"',
        "`daemon.group` must be the name of a group of this machine, as `getent group` lists them,"
        " not 'no such'.",
    ),
    ("[daemon]\nfast = 1", "`daemon.fast` must be true or false, not 1."),
    (
        '[daemon]\nfast_period = "1ms"',
        f"`daemon.fast_period` must be a time from 100ms to 500ms, {TIME}, not '1ms'.",
    ),
    (
        '[daemon]\nlog_level = "loud"',
        '`daemon.log_level` must be one of "debug", "info", "warning", "error", not \'loud\'.',
    ),
    ("daemon = 3", "`daemon` must be a table, headed [daemon], not 3."),
    ("[alert]", "`alert` must be tables, each headed [[alert]], not {}."),
    ("[[alert]]", "`alert[1].command` or `webhook` is needed, one of the two."),
    (
        '[[alert]]\ncommand = "rm -rf"',
        "`alert[1].command` must be an array of texts in quotes, not 'rm -rf'.",
    ),
    (
        '[[alert]]\ncommand = ["x"]\nkinds = ["trottling"]',
        f"`alert[1].kinds` must be {KINDS}, not ['trottling'].",
    ),
    (
        '[[alert]]\ncommand = ["x"]\nfor = "soon"',
        f"`alert[1].for` must be a time from 0s, {TIME}, not 'soon'.",
    ),
    (
        '[[alert]]\nwebhook = "file:///etc"',
        "`alert[1].webhook` must be an address that begins with https:// or http://,"
        " not 'file:///etc'.",
    ),
    (
        '[prometheus]\naddress = "9465"',
        '`prometheus.address` must be "address:port", such as "127.0.0.1:9465", not \'9465\'.',
    ),
    (
        '[prometheus]\ntoken_file = "a"\ntoken_variable = "B"',
        "`prometheus.token_file` and `token_variable` exclude each other; keep one.",
    ),
    (
        '[retention]\ncommand_lines = "few"',
        '`retention.command_lines` must be one of "full", "script", "program", "hash", "none", not'
        " 'few'.",
    ),
    ('[retention]\nraw = "1s"', f"`retention.raw` must be a time from 1h, {TIME}, not '1s'."),
]


@pytest.mark.parametrize(("content", "sentence"), WRONG, ids=[case[0] for case in WRONG])
def test_what_is_wrong_is_one_sentence(content, sentence, read, tmp_path):
    with pytest.raises(UsageError) as error:
        read(content)
    assert str(error.value) == f"{tmp_path / 'gpuadvisor.toml'}: {sentence}"


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[daemon", b"x" * (2 << 20)])
def test_what_is_no_toml(content, read):
    with pytest.raises(UsageError, match="is not"):
        read(content)


def test_a_file_that_was_named_must_exist(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read the configuration .*: No such file"):
        configuration.read(tmp_path / "none.toml")


def test_where_it_is_looked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(configuration, "SYSTEM_FILE", tmp_path / "etc.toml")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert configuration.read(None) == Configuration()
    (tmp_path / "etc.toml").write_text("[daemon]\nfast = true")
    assert configuration.read(None).fast_period_s == 0.1
    own = tmp_path / "config" / "gpuadvisor" / "gpuadvisor.toml"
    own.parent.mkdir(parents=True)
    own.write_text("")
    assert configuration.read(None) == Configuration(own)


KEYS = st.sampled_from(
    [
        *("daemon", "fast", "fast_period", "log_level"),
        *("prometheus", "address", "enabled", "token_file"),
        *("alert", "name", "kinds", "severity", "gpus", "for", "again_after", "recovered"),
        *("command", "webhook", "timeout"),
        *("retention", "raw", "minutes", "x"),
    ]
)
SCALARS = st.one_of(
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["1h", "127.0.0.1:1", "http://[", "https://a:99999999", "throttling", "error"]),
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.dictionaries(KEYS, TREES, max_size=4))
def test_whatever_it_holds_is_read_or_refused_in_a_sentence(read, content):
    import tomli_w

    try:
        made = read(tomli_w.dumps(content))
    except UsageError as error:
        assert len(str(error).splitlines()) == 1
    else:
        assert made.path is not None


@settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.data())
def test_a_file_cut_anywhere_is_read_or_refused(read, data):
    cut = WHOLE[: data.draw(st.integers(0, len(WHOLE)))]
    changed = cut + data.draw(st.text(max_size=5))
    try:
        read(changed.encode("utf-8", "surrogatepass"))
    except UsageError as error:
        assert len(str(error).splitlines()) == 1


def test_the_documentation_shows_every_key_and_is_right():
    page = (Path(__file__).parents[3] / "docs" / "daemon.md").read_text("utf-8")
    block = page.partition("```toml\n")[2].partition("\n```")[0]
    shown = tomllib.loads(re.sub(r"^# (?=\w+ = )", "", block, flags=re.M))
    endpoint = {*Prometheus.__struct_encode_fields__}
    asked = {
        "daemon": {"fast", "fast_period", "log_level", "group", "admin_group"},
        "prometheus": endpoint,
        "retention": {"raw", "minutes", "command_lines"},
    }
    assert {name: set(shown[name]) for name in asked} == asked
    assert set(shown["alert"][0]) == {*AlertRule.__struct_encode_fields__}


def test_the_documentation_explains_every_kind():
    page = (Path(__file__).parents[3] / "docs" / "daemon.md").read_text("utf-8")
    table = page.partition("| kind | begins |")[2]
    assert [kind for kind in configured_values.KINDS if f"`{kind}`" not in table] == []
