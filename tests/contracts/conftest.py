"""Stores over each database, for the contract suites."""

from collections.abc import Iterator

import pytest

from storage.sql.database import Database
from tests.contracts.stores import Stores, stores_over
from tests.servers import redis


@pytest.fixture
def stores(database: Database) -> Stores:
    return stores_over(database)


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    with redis() as url:
        yield url
