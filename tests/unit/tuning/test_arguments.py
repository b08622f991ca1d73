"""The script's own arguments as knobs."""

import pytest

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import ScriptFacts
from gpuadvisor.errors import UsageError
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuning.arguments import (
    ArgumentKnob,
    applied,
    parse_argument,
    parse_arguments,
    value_of,
    with_arguments,
)

CPU = Device("cpu", 0, "cpu")


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("batch-size=16,32", "batch-size", ("16", "32")),
        ("lr=-1, 2 ,", "lr", ("-1", "2")),
        ("-b=8", "-b", ("8",)),
        ("path=a=b", "path", ("a=b",)),
    ],
)
def test_reading(text, name, values):
    assert parse_argument(text) == (name, values)


@pytest.mark.parametrize("text", ["", "batch-size", "=1,2", "--=1", "batch-size=", "x= , "])
def test_what_cannot_be_read(text):
    with pytest.raises(UsageError, match="NAME=VALUE,VALUE such as"):
        parse_argument(text)


def test_an_argument_that_comes_twice_has_all_values():
    assert parse_arguments(["a=1", "b=2", "a=3"]) == {"a": ("1", "3"), "b": ("2",)}


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([], "--batch-size 64"),
        (["--epochs", "1"], "--epochs 1 --batch-size 64"),
        (["--batch-size", "8", "--epochs", "1"], "--batch-size 64 --epochs 1"),
        (["--batch-size=8", "x"], "--batch-size=64 x"),
        (["--batch_size", "8"], "--batch_size 64"),
        (["--batch-size", "8", "--batch-size", "9"], "--batch-size 8 --batch-size 64"),
        (["batch-size", "8"], "batch-size 8 --batch-size 64"),
        (["--batch-size"], "--batch-size 64"),
    ],
)
def test_putting_in(args, expected):
    found = with_arguments(args, {"arg:batch-size": "64", "compile": "default"})
    assert " ".join(found) == expected


@pytest.mark.parametrize(
    ("args", "value"),
    [
        (["-b", "8"], "8"),
        (["-b=8"], "8"),
        (["-b", "8", "-b", "9"], "9"),
        (["-b"], None),
        (["b", "8"], None),
    ],
)
def test_the_present_value(args, value):
    assert value_of(args, "-b") == value


def test_the_present_value_is_no_choice_and_all_others_are_tried():
    knob = ArgumentKnob("batch-size", ("8", "64", "8", "128"), ["--batch-size", "64"])
    assert knob.name == "arg:batch-size"
    assert knob.choices(CPU, ScriptFacts()) == ("8", "128")
    assert knob.patience >= 2
    assert knob.snippet("8") == "--batch-size 8"


def test_knobs_are_applied_in_their_own_order_and_arguments_are_not():
    settings = {"arg:lr": "1", "compile": "default", "dataloader_workers": 2}
    applications, _ = applied(settings, load_knobs())
    assert [each.knob for each in applications] == ["dataloader_workers", "compile"]
