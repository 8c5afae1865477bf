"""The world of a run, for the tests of what stands around it."""

from tests.integration.core.conftest import world as world
