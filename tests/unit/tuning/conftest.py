"""Studies in stores of their own, without what Optuna repeats for each."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def migrations_are_read_once() -> Iterator[None]:
    """For each new file Optuna reads its own migrations up to three times, which takes 0.2 s."""
    from alembic.script import ScriptDirectory

    read = ScriptDirectory.from_config
    known: dict[str | None, ScriptDirectory] = {}

    def once(config):
        place = config.get_main_option("script_location")
        if place not in known:
            known[place] = read(config)
        return known[place]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptDirectory, "from_config", once)
        yield
