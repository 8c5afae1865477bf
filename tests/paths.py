"""Where the tests find the repository and its files, wherever they are started."""

from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
FAKES = REPOSITORY / "tests" / "fakes"
FIXTURES = REPOSITORY / "tests" / "fixtures"
