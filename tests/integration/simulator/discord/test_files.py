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


async def test_an_edit_keeps_the_files_that_it_names(rest: Rest) -> None:
    files = [("files[0]", "a.txt", b"a"), ("files[1]", "b.txt", b"b")]
    _, message = await rest("POST", GENERAL, form=form("{}", *files))
    path, (first, _) = f"{GENERAL}/{message['id']}", message["attachments"]
    _, same = await rest("PATCH", path, {"content": "x"})
    assert len(same["attachments"]) == 2
    _, fewer = await rest("PATCH", path, {"attachments": [{"id": first["id"]}]})
    assert [item["filename"] for item in fewer["attachments"]] == ["a.txt"]
    _, more = await rest("PATCH", path, form=form("{}", ("files[0]", "c.txt", b"c")))
    assert [item["filename"] for item in more["attachments"]] == ["a.txt", "c.txt"]
