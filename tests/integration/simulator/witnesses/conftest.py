"""The npm packages with the published types, which are installed once."""

from pathlib import Path

import pytest

from tests.support.published_types import install_packages


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_packages(tmp_path_factory.mktemp("types"))
