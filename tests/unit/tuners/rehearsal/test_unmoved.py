"""Numbers that are others under a plan though training does not move them, by lives made up."""

from array import array
from dataclasses import replace

import pytest

from gpuadvisor.domain.rehearsal import Call, Life, Numbers, WrittenFile
from gpuadvisor.domain.study import TrialState
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuners.rehearsal.lives import Findings, Lives
from gpuadvisor.tuners.rehearsal.unmoved import OTHER_WEIGHTS, Unmoved

WORKERS = {"dataloader_workers": 2}
WHATEVER = ", whatever the weights of the model are"
UNKNOWN = ", and there was no life with other weights to show that they move it"


def life(output="", weights=1.0, **keys):
    """A life that prints this, and writes these numbers to one file."""
    calls = tuple(Call(n, 1, 1, True, ((weights * (n + 1.0), 2.0),)) for n in range(4))
    parts = {
        key.replace("__", "."): Numbers(len(values), array("d", values))
        for key, values in keys.items()
    }
    written = {"state.json": WrittenFile(100, str(keys), parts, is_text=True)}
    return Life(
        TrialState.COMPLETE, output=output, calls=calls, losses=(weights,) * 9, written=written
    )


def difference(ours, theirs, others=(), second=None, asked=None, settings=WORKERS, **changes):
    """Return what is told of these lives; further ones are given in this order."""
    left = list(others or ())

    def other(amount, redraws_data):
        if asked is not None:
            asked.append((amount, redraws_data))
        return left.pop(0) if left else None

    lives = Lives(ours, second or ours, theirs, other=other if others is not None else None)
    return Unmoved(Findings(lives, settings, load_knobs(), 0.01, **changes)).difference()


@pytest.mark.parametrize(
    ("key", "ours", "theirs", "said"),
    [
        ("place", [640.0], [704.0], "place is 640, and 704 with the settings"),
        ("place", [640.0, 1280.0], [640.0, 1281.0], "place is 1280, and 1281 with the settings"),
        ("lr", [0.01, 0.02], [0.01, 0.0201], "lr is 0.02, and 0.0201 with the settings"),
        ("lr", [0.01], [0.01 * (1 + 1e-6)], None),
        ("n", [12_345_678.0], [12_345_679.0], "n is 12345678, and 12345679 with the settings"),
        ("place", [640.0], [640.0], None),
        ("rate", [float("nan")], [float("nan")], None),
        ("peak_memory_mb", [304.0], [305.0], None),
    ],
)  # fmt: skip
def test_numbers_that_are_the_same_with_all_weights(key, ours, theirs, said):
    others = [life(weights=weights, **{key: ours}) for weights in (1.5, 2.0)]
    found = difference(life(**{key: ours}), life(**{key: theirs}), others)
    assert found == (said and f"state.json: {said}{WHATEVER}")


@pytest.mark.parametrize("places", [([800.0], [640.0]), ([640.0], [800.0])])
def test_a_count_that_one_of_two_other_models_moves(places):
    """As by chance a small count is the same in the first."""
    others = [life(weights=2.0, right=right) for right in places]
    assert difference(life(right=[640.0]), life(right=[641.0]), others) is None


def test_lives_are_asked_for_only_where_a_number_differs():
    asked = []
    same = life("seen 640\n", place=[640.0])
    assert difference(same, same, [same], asked=asked) is None
    assert asked == []
    moved = [life(weights=2.0, right=[9.0])]
    assert difference(life(right=[640.0]), life(right=[641.0]), moved, asked=asked) is None
    assert asked == [(OTHER_WEIGHTS[0], False)]


@pytest.mark.parametrize(("ours", "theirs", "asks"), [(0.5, 0.5001, False), (640.0, 641.0, True)])
def test_rounding_moves_what_is_not_whole(ours, theirs, asks):
    asked = []
    bf16 = {"bf16_autocast": True}
    difference(life(n=[ours]), life(n=[theirs]), (), asked=asked, settings=bf16)
    assert bool(asked) is asks


def test_other_data_is_drawn_where_the_plan_did_so():
    asked = []
    difference(life(n=[6.0]), life(n=[7.0]), [life(weights=2.0, n=[5.0])], asked=asked, moved=True)
    assert asked == [(OTHER_WEIGHTS[0], True)]


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [([640.0], [704.0], "n is 640, and 704 with the settings"), ([0.02], [0.021], None)],
)
@pytest.mark.parametrize("others", [None, (), [life(n=[640.0]), life(n=[640.0])]])
def test_without_another_model_whole_numbers_are_told(ours, theirs, said, others):
    """Weights that make no difference are no other model's."""
    found = difference(life(n=ours), life(n=theirs), others)
    assert found == (said and f"state.json: {said}{UNKNOWN}")


@pytest.mark.parametrize(
    ("ours", "theirs", "other", "said"),
    [
        ("640 seen, 0.5\n", "704 seen, 0.5\n", "640 seen, 0.7\n", "704 is printed and not 640"),
        ("640 right\n", "641 right\n", "620 right\n", None),
        ("lr 0.02\n", "lr 0.021\n", "lr 0.02\n", "0.021 is printed and not 0.02"),
        ("a 640 took 1 s\n", "a 641 took 1 s\n", "a 640 took 1 s\n", None),
        ("epoch 1: 304 MB\n", "epoch 1: 305 MB\n", "epoch 1: 304 MB\n", None),
        ("3MB, 640 rows\n", "3MB, 641 rows\n", "3MB, 640 rows\n", "641 is printed and not 640"),
        ("5 s\n2 a\n", "5 s\n", "5 s\n2 a\n", None),
    ],
)  # fmt: skip
def test_what_is_printed(ours, theirs, other, said):
    found = difference(life(ours), life(theirs), [life(other, 2.0)] * 2)
    assert found is None if said is None else found.startswith(f"{said} (")


def test_what_unchanged_lives_do_not_agree_in_is_not_compared():
    """As a time that nothing calls so."""
    ours = life("done 640\n", n=[3.0])
    second = life("done 641\n", n=[4.0])
    assert difference(ours, life("done 700\n", n=[3.5]), (), second) is None


def test_lives_that_were_cut_off_are_not_compared():
    assert difference(life(n=[640.0]), life(n=[704.0]), (), cut="it did not end") is None


def test_tensors_of_a_checkpoint_and_the_place_beside_them():
    ours = life(model__weight=[0.5, 0.25], place=[640.0])
    plan = life(model__weight=[0.501, 0.25], place=[704.0])
    other = life(weights=2.0, model__weight=[0.9, 0.1], place=[640.0])
    assert difference(ours, plan, [other]) == (
        f"state.json: place is 640, and 704 with the settings{WHATEVER}"
    )
    same = replace(plan, written={**plan.written, "state.json": ours.written["state.json"]})
    assert difference(ours, same, [other]) is None
