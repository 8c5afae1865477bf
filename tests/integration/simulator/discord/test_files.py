"""Uploads and downloads over plain HTTP."""

from simulator.discord import DiscordSimulator
from tests.integration.simulator.discord.bot import Rest, form

GENERAL = "/channels/4001/messages"


async def test_files_are_uploaded_and_downloaded(rest: Rest, simulator: DiscordSimulator) -> None:
    payload = '{"content": "here", "attachments": [{"id": 0, "description": "numbers"}]}'
    _, message = await rest("POST", GENERAL, form=form(payload, ("files[0]", "my data.csv", b"1")))
    (attachment,) = message["attachments"]
    assert attachment["filename"] == "my_data.csv"
    assert attachment["title"] == "my data"
    assert attachment["description"] == "numbers"
    assert (attachment["size"], attachment["content_type"]) == (1, "text/csv")
    async with rest.session.get(attachment["url"]) as response:
        assert await response.read() == b"1"
    (seen,) = simulator.view().channels[0].messages[0].files
    assert seen.name == "my data.csv"
    async with rest.session.get(seen.url) as response:
        assert (response.status, await response.read()) == (200, b"1")


async def test_an_address_expires_and_cannot_be_forged(rest: Rest) -> None:
    rest.simulator.settings.file_url_seconds = -1
    _, message = await rest("POST", GENERAL, form=form("{}", ("files[0]", "a.txt", b"1")))
    url = message["attachments"][0]["url"]
    async with rest.session.get(url) as response:
        assert response.status == 404
    rest.simulator.settings.file_url_seconds = 60
    _, again = await rest("GET", f"{GENERAL}/{message['id']}")
    url = again["attachments"][0]["url"]
    for forged in (url.replace("ex=", "ex=f"), url.partition("?")[0], url + "0"):
        async with rest.session.get(forged) as response:
            assert response.status == 404
    async with rest.session.get(url) as response:
        assert response.status == 200


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
