"""Databases for the tests of the storage."""

from tests.storage.databases import (  # noqa: F401 - fixtures are found by name
    database,
    database_url,
    empty_sqlite_file,
    new_url,
    postgresql_url,
)
