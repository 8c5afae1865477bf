"""When a run is given up because its workers died over it."""

import pytest

from core.domain.errors import RunError
from core.domain.threads import Lease
from core.run.run_end import WORKER_DEATHS_MAX, check_not_poison


@pytest.mark.parametrize(
    ("deaths", "is_poison"), [(0, False), (1, False), (WORKER_DEATHS_MAX, False), (WORKER_DEATHS_MAX + 1, True)]
)
def test_a_run_is_given_up_after_so_many_deaths_in_a_row(deaths: int, *, is_poison: bool) -> None:
    lease = Lease(run_id="r", thread_id="t", worker_id="w", fence=1, attempt=9, deaths=deaths)
    if is_poison:
        with pytest.raises(RunError, match="stopped several times"):
            check_not_poison(lease)
    else:
        check_not_poison(lease)
