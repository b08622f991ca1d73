"""Which machines are asked, and with which tokens."""

import pytest

from gpuadvisor.daemon import configuration
from gpuadvisor.daemon.endpoint.hosts import TOKEN_VARIABLE, Host, chosen, warnings
from gpuadvisor.errors import UsageError


@pytest.fixture(autouse=True)
def no_token(monkeypatch):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)


@pytest.fixture
def configured(tmp_path):
    def read(text):
        path = tmp_path / "gpuadvisor.toml"
        path.write_text(text)
        return configuration.read(path).hosts

    return read


@pytest.mark.parametrize(
    ("word", "host"),
    [
        ("node7", Host("node7", "node7", 9465)),
        ("node7:9999", Host("node7:9999", "node7", 9999)),
        ("10.0.0.7", Host("10.0.0.7", "10.0.0.7", 9465)),
        ("[::1]:9999", Host("[::1]:9999", "::1", 9999)),
        ("http://node7", Host("node7", "node7", 9465)),
        ("https://node7.example.org", Host("node7.example.org", "node7.example.org", 443, True)),
        ("http://node7:9465/metrics", Host("node7", "node7", 9465)),
        ("https://gpu.example.org/a/metrics", Host("gpu.example.org/a", "gpu.example.org", 443, True, "/a")),  # noqa: E501
        ("https://gpu.example.org/a/", Host("gpu.example.org/a", "gpu.example.org", 443, True, "/a")),  # noqa: E501
    ],
)  # fmt: skip
def test_an_address(word, host):
    assert chosen(word, ()) == [host]


def test_several_each_once():
    assert [each.name for each in chosen("a, b,a:9465,,c", ())] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "word",
    ["ftp://node7", "node7:0", "node7:99999", "node7:port", "no de", "a?b", "[::1", "//", "a\x1b"],
)  # fmt: skip
def test_what_is_no_address(word):
    with pytest.raises(UsageError, match=r"is no host: name one as node7, node7:9465"):
        chosen(word, ())


def test_a_password_in_an_address_is_refused_and_not_said_again():
    with pytest.raises(UsageError, match="does not belong on the command line") as refused:
        chosen("https://me:hunter2@node7", ())
    assert "hunter2" not in str(refused.value)


def test_hosts_of_the_configuration(configured, tmp_path):
    (tmp_path / "token").write_text("abc\n")
    hosts = configured(
        f'[[host]]\nname = "big"\naddress = "https://node7"\ntoken_file = "{tmp_path}/token"\n'
        'ca_file = "/ca.pem"\n[[host]]\naddress = "node8:1234"\n'
    )
    big = Host("big", "node7", 443, True, "", str(tmp_path / "token"), None, "/ca.pem")
    small = Host("node8:1234", "node8", 1234)
    assert chosen("", hosts) == [big, small]
    assert chosen("node9,big", hosts) == [Host("node9", "node9"), big]
    assert big.token() == "abc"


def test_no_names_and_none_configured():
    with pytest.raises(UsageError, match=r"name them \(--host node7,node8\), or add \[\[host\]\]"):
        chosen("", ())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[host]]\nname = 'a'", r"`host\[1\].address` is needed"),
        ("[[host]]\nadress = 'a'", r"`host\[1\].adress` is not a key here; did you mean `address`"),
        ("[host]\naddress = 'a'", r"`host` must be tables, each headed \[\[host\]\]"),
        (
            "[[host]]\naddress = 'a'\ntoken_file = 'a'\ntoken_variable = 'b'",
            r"`host\[1\].token_file` and `token_variable` exclude each other",
        ),
    ],
)
def test_a_table_that_is_wrong(configured, text, said):
    with pytest.raises(UsageError, match=said):
        configured(text)


def test_whose_token_is_asked(configured, tmp_path, monkeypatch):
    for name in ("own", "all"):
        (tmp_path / name).write_text(name)
    hosts = configured(f'[[host]]\naddress = "a"\ntoken_file = "{tmp_path}/own"')
    monkeypatch.setenv(TOKEN_VARIABLE, "environment")
    assert [each.token() for each in chosen("a,b", hosts)] == ["own", "environment"]
    assert [h.token() for h in chosen("a,b", hosts, tmp_path / "all")] == ["own", "all"]


@pytest.mark.parametrize(
    ("content", "said"), [(b"", "is empty"), (b"a\nb", "hold only"), (b"\xe9", "hold only")]
)
def test_a_token_that_is_none(tmp_path, content, said):
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(UsageError, match=said):
        chosen("a", (), tmp_path / "token")


def test_a_token_is_warned_of_where_it_can_be_read_on_the_way(monkeypatch):
    names = "localhost,127.0.0.1,[::1],https://node7,node8"
    assert warnings(chosen(names, ())) == []
    monkeypatch.setenv(TOKEN_VARIABLE, "abc")
    (said,) = warnings(chosen(names, ()))
    assert said.startswith("the token goes to node8 unencrypted")
    assert "abc" not in said
