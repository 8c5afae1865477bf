"""Uploads and downloads over plain HTTP."""

from tests.integration.simulator.discord.bot import Rest, form

GENERAL = "/channels/4001/messages"


async def test_a_file_over_the_limit_of_the_guild_is_refused(rest: Rest) -> None:
    large = b"x" * (10 * 1024 * 1024 + 1)
    data = form("{}", ("files[0]", "a.bin", large))
    assert (await rest("POST", GENERAL, form=data)) == (413, {"message": "Request entity too large", "code": 40005})
    rest.simulator.settings.guild_tier = 2
    assert (await rest("POST", GENERAL, form=form("{}", ("files[0]", "a.bin", large))))[0] == 200


async def test_at_most_ten_files(rest: Rest) -> None:
    files = [(f"files[{n}]", f"{n}.txt", b"") for n in range(11)]
    assert (await rest("POST", GENERAL, form=form("{}", *files)))[1]["code"] == 50035
