"""Tests marked `gpu` run where there is one; elsewhere they are skipped, and say so."""

import pytest

from gpuadvisor.collectors.devices import inventory


def pytest_collection_modifyitems(items):
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not inventory().gpus:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))
