"""Commands of two words, such as `gate record`, beside the command that is their first word."""

import pytest

from gpuadvisor import cli
from gpuadvisor.commands import load_commands


def test_a_file_in_the_folder_of_a_command_is_a_command_of_two_words():
    found = load_commands("gate")
    assert {"gate", "gate record", "gate check", "gate bisect"} <= found.keys()
    assert not any(name.split()[0] != "gate" for name in found)
    assert found["gate record"].__name__ == "gpuadvisor.commands.gate.record"


def test_its_help_is_its_own(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["gate", "record", "--help"])
    out = capsys.readouterr().out
    assert ended.value.code == 0
    assert out.startswith("usage: gpuadvisor gate record [-h]")
    assert "--runs" in out
    assert "--base" not in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["gate", "record", "--name", "x", "train.py", "--epochs", "1"],
            "gate record has no --epochs: put the script's own arguments after --, as in "
            "`gpuadvisor gate record --name x train.py -- --epochs 1`",
        ),
        (
            ["gate", "record", "--name", "x", "--runz", "3", "a.py"],
            "gate record has no --runz: did",
        ),
        (
            ["gate", "history", "--", "x"],
            "gate history takes nothing after --",
        ),
        (["gate", "accept", "x"], "`gpuadvisor gate accept --help` lists what it takes"),
    ],
)
def test_sentences_name_both_words(words, sentence, capsys):
    assert cli.main(words) == 2
    assert sentence in capsys.readouterr().err


def test_a_script_that_is_called_like_the_second_word_is_given_by_its_path(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["gate", "--base-folder", ".", "--head-folder", ".", "./record"]) == 2
    assert "there is no script ./record" in capsys.readouterr().err
    assert cli.main(["gate", "--base", "HEAD", "record"]) == 2
    assert "there is no script record" in capsys.readouterr().err
