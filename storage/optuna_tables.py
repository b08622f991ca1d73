"""Optuna's tables, in the same file as ours."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gpuadvisor.errors import StoreError
from gpuadvisor.storage.failures import ELSEWHERE, explained
from gpuadvisor.storage.locks import locked
from gpuadvisor.storage.open_database import url
from gpuadvisor.storage.sqlite_file import connect

if TYPE_CHECKING:
    from optuna.storages import RDBStorage


def open_optuna(path: Path) -> RDBStorage:
    """Return Optuna's storage on this file, its tables created if need be.

    StoreError where the file cannot be used, or another version of Optuna made its tables.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)  # our reports say what happens
    address = url(path).render_as_string().replace("{", "{{").replace("}", "}}")
    # Write transactions from the start, as for our tables; two processes that create Optuna's
    # tables at once would both find them missing.
    writer = partial(connect, path, "IMMEDIATE")
    with explained(path), locked(path.with_name("optuna.lock"), wait=True):
        try:
            return optuna.storages.RDBStorage(address, engine_kwargs={"creator": writer})
        except RuntimeError as error:
            raise StoreError(
                f"Optuna {optuna.__version__} cannot read its tables in {path}, which another "
                f"version made: install that one, or {ELSEWHERE}."
            ) from error
