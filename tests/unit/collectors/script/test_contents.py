"""What is read from files that a script wrote, and that no file can do harm."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuadvisor.collectors.script.contents import MOST_BYTES, MOST_VALUES, ContentReader

VALUES = np.array([[1.5, -2.0, 3.0], [4.0, 5.0, 6.25]], dtype=np.float32)


def read(folder, name, content):
    path = folder / "written"
    path.write_bytes(content)
    return ContentReader().read(path, name, len(content))


def numbers(folder, name, content):
    found = read(folder, name, content).numbers
    assert found is not None
    return {key: (part.count, list(part.values)) for key, part in found.items()}


def npy(values):
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


def npz(save, **arrays):
    file = io.BytesIO()
    save(file, **arrays)
    return file.getvalue()


def safetensors(values):
    header = {"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, values.nbytes]}}
    text = json.dumps({**header, "__metadata__": {"format": "pt"}}).encode()
    return struct.pack("<Q", len(text)) + text + values.tobytes()


FLAT = (6, VALUES.ravel().tolist())


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.npy", npy(VALUES), {"": FLAT}),
        ("a.npy", npy(VALUES.T), {"": (6, VALUES.T.ravel().tolist())}),
        ("no suffix", npy(VALUES > 3), {"": (6, [0, 0, 0, 1, 1, 1])}),
        ("a.npz", npz(np.savez, x=VALUES, y=np.arange(3)), {"x": FLAT, "y": (3, [0, 1, 2])}),
        ("a.npz", npz(np.savez_compressed, x=VALUES), {"x": FLAT}),
        ("m.safetensors", safetensors(VALUES), {"w": FLAT}),
        ("p.pkl", pickle.dumps({"y": VALUES, "n": 7, "h": [1, 2.5]}),
         {"y": FLAT, "n": (1, [7]), "h": (2, [1, 2.5])}),
        ("p.pkl", pickle.dumps([np.float32(2), VALUES], protocol=5), {"": FLAT, "(2)": (1, [2])}),
        ("r.json", b'{"acc": 0.5, "rows": [[1, 2], [3, 4]]}', {"acc": (1, [0.5]),
         "rows": (4, [1, 2, 3, 4])}),
        ("r.jsonl", b'{"p": 0.5}\n{"p": 0.25}\n', {"p": (2, [0.5, 0.25])}),
    ],
)  # fmt: skip
def test_numbers_are_read_by_their_names(tmp_path, name, content, expected):
    found = numbers(tmp_path, name, content)
    assert found == expected


def test_columns_of_a_table(tmp_path):
    found = numbers(tmp_path, "p.csv", b"id,score\n0,0.5\n1,-0.25\n2,1e-3\n")
    assert found["#,# (1)"] == (3, [0, 1, 2])
    assert found["#,# (2)"] == (3, [0.5, -0.25, 0.001])
    assert found["words"][0] == 4


def test_the_head_of_a_table_says_which_column_is_of_time(tmp_path):
    table = b"epoch,loss,lr,seconds\n0,0.5,0.1,3.21\n1,0.4,0.1,3.33\n"
    found = read(tmp_path, "history.csv", table).numbers
    assert [found[f"#,#,#,# ({n})"].may_be_times for n in (1, 2, 3, 4)] == [False] * 3 + [True]
    for plain in (b"a,b\n1,2\n", b"1,2\n3,4\n", b"seconds\n3.2\n"):
        parts = read(tmp_path, "p.csv", plain).numbers.values()
        assert not any(part.may_be_times for part in parts)


def test_the_head_of_a_table_names_a_column_of_memory(tmp_path):
    table = b"epoch,memory_mb,rows\n0,304,640\n1,305,640\n"
    found = read(tmp_path, "history.csv", table).numbers
    assert set(found) == {"words", "#,#,# (1)", "#,#,# (2 memory_mb)", "#,#,# (3)"}


def test_what_may_be_a_time_says_so(tmp_path):
    found = read(tmp_path, "r.json", b'{"seconds": [3, {"n": 5}], "wall_s": 2, "acc": 1}').numbers
    assert {key: part.may_be_times for key, part in found.items()} == {
        "seconds": True, "seconds.n": True, "wall_s": True, "acc": False
    }  # fmt: skip
    found = read(tmp_path, "p.pkl", pickle.dumps({"took": VALUES})).numbers
    assert found["took"].may_be_times


def test_lines_of_a_log_that_tell_times(tmp_path):
    text = b"loss 0.5 in epoch 1\ntook 3.1 s\n12:30:01 begun\nloss 0.4 in epoch 2\n"
    found = numbers(tmp_path, "train.log", text)
    assert found["loss # in epoch # (1)"] == (2, [0.5, 0.4])
    assert found["took # s (1)"] == (1, [3.1])
    assert found["words"][0] == 3, "how many lines there are of the second may depend on time"


def test_a_mapping_of_many_samples_is_one_list(tmp_path):
    text = json.dumps({f"img_{n}": n / 2 for n in range(100)})
    parts = read(tmp_path, "p.json", text.encode()).numbers
    assert [(part.count, part.are_texts) for part in parts.values()] == [(100, True), (100, False)]
    assert list(parts["(2)"].values) == [n / 2 for n in range(100)]


def test_moments_are_texts_that_may_be_times(tmp_path):
    found = read(tmp_path, "p.csv", b"7,2024-03-01 10:00:00\n8,2024-03-01 10:05:00\n").numbers
    moments = found["#,@ (moments)"]
    assert (moments.count, moments.may_be_times, moments.are_texts) == (2, True, True)
    assert len(set(moments.values)) == 2


def test_a_long_array_is_spread_evenly(tmp_path):
    array = np.arange(3 * MOST_VALUES)
    count, values = numbers(tmp_path, "a.npy", npy(array))[""]
    assert count == 3 * MOST_VALUES
    assert values == array[::3].tolist()


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\0\0", b"\xff\xfe binary", b"PK\x03\x04 damaged"])
def test_other_formats_have_a_digest_only(tmp_path, content):
    found = read(tmp_path, "a.png", content)
    assert found.numbers is None
    assert found.digest
    assert found.digest != read(tmp_path, "a.png", content + b"x").digest


def test_too_large_to_be_read(tmp_path):
    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    found = ContentReader().read(path, "huge", MOST_BYTES + 1)
    assert (found.digest, found.numbers, found.size) == ("", None, MOST_BYTES + 1)


class Hostile:
    """Runs a program when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


class Kept:
    """An object of the script's own class."""

    def __init__(self) -> None:
        self.scores = VALUES
        self.best = 3


def test_nothing_in_a_pickle_is_run(tmp_path):
    touched = tmp_path / "touched"
    read(tmp_path, "p.pkl", pickle.dumps({"x": Hostile(touched), "y": 1}))
    assert not touched.exists()


def test_objects_of_unknown_classes_are_looked_into(tmp_path):
    found = numbers(tmp_path, "p.pkl", pickle.dumps({"run": Kept()}))
    assert FLAT in found.values()
    assert (1, [3]) in found.values()


class TestTorch:
    """`torch.save`, of which torch itself is not needed to read it."""

    def saved(self, value):
        torch = pytest.importorskip("torch")
        file = io.BytesIO()
        torch.save(value(torch), file)
        return file.getvalue()

    def test_tensors_by_their_names(self, tmp_path):
        content = self.saved(
            lambda torch: {
                "model": {"w": torch.tensor(VALUES), "t": torch.tensor(VALUES).t()},
                "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
                "none": torch.zeros(0),
                "parameter": torch.nn.Parameter(torch.ones(2)),
                "epoch": 3,
            }
        )
        found = numbers(tmp_path, "best.pt", content)
        assert found["model.w"] == FLAT
        assert found["model.t"] == (6, VALUES.T.ravel().tolist())
        assert found["half"] == (2, [1.5, -2.0])
        assert found["parameter"] == (2, [1, 1])
        assert found["none"] == (0, [])
        assert found["epoch"] == (1, [3])

    def test_a_whole_module(self, tmp_path):
        found = numbers(tmp_path, "m.pt", self.saved(lambda torch: torch.nn.Linear(2, 3)))
        assert [part[0] for key, part in found.items() if key.endswith("weight")] == [6]


def test_scripted_modules_have_another_format(tmp_path):
    """As `torch.jit.save` writes them: code and constants beside the data."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("m/data.pkl", pickle.dumps({}, protocol=2))
        archive.writestr("m/constants.pkl", b"")
    assert read(tmp_path, "m.pt", file.getvalue()).numbers is None


GOOD = [
    ("a.npy", npy(VALUES)),
    ("a.npz", npz(np.savez, x=VALUES)),
    ("m.safetensors", safetensors(VALUES)),
    ("p.pkl", pickle.dumps({"a": VALUES, "b": [1, "x", None, {2, 3}]})),
    ("r.json", b'{"a": [1, {"b": 2}], "c": "text"}'),
    ("t.csv", b"1,2\n3,4\n"),
]


@given(st.sampled_from(GOOD), st.data())
@settings(max_examples=150, deadline=None)
def test_a_damaged_file_is_one_that_cannot_be_read(tmp_path_factory, good, data):
    name, content = good
    folder = tmp_path_factory.getbasetemp()
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(damaged) - 1))
        damaged[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(1, len(damaged)))
    found = read(folder, name, bytes(damaged[:cut]))
    assert found.size == cut
    assert found.digest


def test_rows_of_a_long_array_are_seen_in_every_column(tmp_path):
    pairs = np.zeros((MOST_VALUES, 1, 2))
    pairs[..., 1] = 1
    _, values = numbers(tmp_path, "a.npy", npy(pairs))[""]
    assert set(values) == {0, 1}


def test_columns_of_a_table_of_numbers_stand_apart(tmp_path):
    table = np.column_stack([np.arange(100_000, 100_100), np.linspace(0, 1, 100)])
    found = numbers(tmp_path, "a.npy", npy(table))
    assert found["column 1"][1][0] == 100_000
    assert found["column 2"] == (100, np.linspace(0, 1, 100).tolist())
