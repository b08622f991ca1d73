"""What rules about counted kernels say of blocks that the GPU does not take in full rounds."""

import pytest

from gpuadvisor.rules.catalogue import tail_effect
from tests.rules.cases.tail_effect import rounds


@pytest.mark.parametrize(
    ("blocks", "resident", "words"),
    [
        (133, 1, "the GPU takes 132 at a time: 50% of the places in 2 rounds stay empty"),
        (133, 8, "which all run at once: 2 on some of the 132 multiprocessors and 1 on others"),
        (275, 3, "which all run at once: 3 on some of the 132 multiprocessors and 2 on others"),
    ],
)
def test_rounds_are_told_only_where_blocks_wait_for_others(blocks, resident, words):
    (found,) = tail_effect.check(rounds(blocks, 0.48, resident))
    assert words in found.summary
    waves = next(each.value for each in found.evidence if each.metric == "waves")
    assert waves == pytest.approx(blocks / (132 * resident), abs=0.01)
