"""What is looked at before something is profiled."""

import pytest

from gpuadvisor.errors import StoreError
from gpuadvisor.profiling.importing import check_name


def test_a_store_that_cannot_keep_the_profile_is_told_of_before_anything_runs(
    tmp_path, monkeypatch
):
    (tmp_path / "home").write_text("a file, and no folder")
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "home"))
    with pytest.raises(StoreError, match="GPUADVISOR_HOME"):
        check_name(None)
