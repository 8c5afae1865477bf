"""Assertions of the stories explain themselves as those of tests do."""

import pytest

pytest.register_assert_rewrite(
    "tests.chaos.knowledge_stories", "tests.chaos.report_story", "tests.chaos.stories"
)
