"""What a user may ask for."""

import pytest

from gpuadvisor.errors import UsageError
from gpuadvisor.tuning.options import check_knob_names


def test_unknown_knobs():
    known = {"bf16_autocast": 1, "compile": 2}
    check_knob_names(frozenset(), known, "--only")
    check_knob_names(frozenset(known), known, "--only")
    with pytest.raises(UsageError, match=r"--only bf16: .*did you mean bf16_autocast"):
        check_knob_names(frozenset({"bf16"}), known, "--only")
    with pytest.raises(UsageError, match="there are: bf16_autocast, compile"):
        check_knob_names(frozenset({"zzz"}), known, "--without")
