"""What a process may believe of the signs that it put on messages."""

from bots.delivery.reaction_cache import ReactionCache


def test_a_sign_is_known_for_a_while() -> None:
    signs = ReactionCache()
    assert signs.last("m1") is None
    signs.put("m1", "eyes")
    assert (signs.last("m1"), signs.is_sure("m1")) == ("eyes", True)
    signs.put("m1", "eyes", is_sure=False)
    assert (signs.last("m1"), signs.is_sure("m1")) == ("eyes", False)


def test_after_that_another_process_may_have_put_one() -> None:
    signs = ReactionCache(sure_seconds=0)
    signs.put("m1", "eyes")
    assert (signs.last("m1"), signs.is_sure("m1")) == ("eyes", False)
