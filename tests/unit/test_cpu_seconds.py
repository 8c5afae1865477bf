"""The measurement of CPU time, on which the tests of linear time and of a free event loop depend."""

import threading
import time

from tests.fakes.cpu_seconds import seconds_of

SECONDS_MAX = 0.005


def use_cpu() -> None:
    begun = time.thread_time()
    while time.thread_time() - begun < 30 * SECONDS_MAX:
        sum(range(10_000))


def in_a_thread() -> None:
    thread = threading.Thread(target=use_cpu)
    thread.start()
    thread.join()


def test_the_work_of_another_thread_neither_counts_nor_ends_a_try() -> None:
    assert seconds_of(in_a_thread, seconds_max=SECONDS_MAX) <= SECONDS_MAX


def test_work_that_takes_far_too_long_is_ended() -> None:
    def never_end() -> None:
        while True:
            pass

    assert seconds_of(never_end, seconds_max=SECONDS_MAX) == float("inf")
