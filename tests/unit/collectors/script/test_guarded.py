"""A failure of the harness ends no script, unless the script is lost anyway."""

from __future__ import annotations

import pytest

from gpuadvisor.collectors.script.child.channel import guarded


class Told:
    def __init__(self) -> None:
        self.details: list[str] = []

    def send(self, event: str, /, **fields) -> None:
        assert event == "harness_failed"
        self.details.append(fields["detail"])


@pytest.mark.parametrize(
    "error", [ValueError("no"), MemoryError("CUDA out of memory. Tried to allocate 2 GiB")]
)
def test_it_is_told_and_the_script_goes_on(error):
    told = Told()
    with guarded(told, "count"):
        raise error
    assert told.details == [f"gpuadvisor could not count: {type(error).__name__}: {error}"]


@pytest.mark.parametrize(
    "error", [RuntimeError("CUDA error: device-side assert triggered\nFor"), KeyboardInterrupt()]
)
def test_what_ends_the_script_anyway_is_raised(error):
    told = Told()
    with pytest.raises(type(error)), guarded(told, "count"):
        raise error
    assert not told.details


def test_without_anybody_to_tell_the_user_is_told(capsys):
    with guarded(None, "count"):
        raise ValueError("no")
    said = capsys.readouterr().err
    assert said == "gpuadvisor could not count: ValueError: no; the script runs without it\n"
