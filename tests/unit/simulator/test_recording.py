"""What a recorder sees of the simulators, which payloads it writes, and what a witness says about unknown kinds."""

from tests.support.published_types import PublishedTypes, without_nulls


def test_a_kind_without_a_type_is_refused_and_a_reading_is_a_second_chance() -> None:
    number = {"type": "object", "properties": {"n": {"type": "number"}}}
    types = PublishedTypes({}, {"known": number})
    types.check("known", {"n": 1})
    types.check("known", {"n": None}, as_well=(without_nulls,))
    assert types.report() == ""
    types.check("known", {"n": "1"}, as_well=(without_nulls,))
    types.check("unknown", {})
    assert "known at /n" in types.report()
    assert "unknown: no published type is known" in types.report()
    assert types.seen == {"known": 3, "unknown": 1}
