"""The guard: what is refused, and that nothing gets around it."""

from collections.abc import AsyncIterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address

import pytest
from aiohttp import ClientSession, web
from hypothesis import given
from hypothesis import strategies as st

from core.domain.errors import ToolError
from core.web_access.fetch import USER_AGENT, FetchLimits, fetch
from core.web_access.guard import AddressGuard, RefusedAddress, is_refused, web_url
from tests.fakes.stand_in import StandIn, endless, moved, refusal, says, silent, stand_in

REFUSED = [
    "127.0.0.1",
    "127.8.8.8",
    "0.0.0.0",  # noqa: S104 - refused
    "10.1.2.3",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.9",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.51.100.7",
    "203.0.113.9",
    "224.0.0.1",
    "224.0.1.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:808:808::",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
    "example.com",
    "",
    "127.1",
    "0x7f.0.0.1",
]
PERMITTED = [
    "8.8.8.8",
    "1.1.1.1",
    "93.184.215.14",
    "172.32.0.1",
    "2606:4700::1111",
    "2a00:1450:4001::1",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
]


@pytest.mark.parametrize("address", REFUSED)
def test_an_address_of_no_public_place_is_refused(address: str) -> None:
    assert is_refused(address)


@pytest.mark.parametrize("address", PERMITTED)
def test_an_address_of_the_public_internet_is_permitted(address: str) -> None:
    assert not is_refused(address)


@given(st.integers(min_value=0, max_value=2**32 - 1))
def test_ipv6_forms_of_an_address_are_judged_like_it(number: int) -> None:
    plain = IPv4Address(number)
    for form in (0xFFFF << 32, 0x64FF9B << 96):
        assert is_refused(IPv6Address(form + number)) == is_refused(plain)


@given(st.sampled_from(["10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3"]), st.data())
def test_no_address_of_a_closed_network_is_permitted(network: str, data: st.DataObject) -> None:
    known = IPv4Network(network)
    offset = data.draw(st.integers(min_value=0, max_value=known.num_addresses - 1))
    assert is_refused(known.network_address + offset)


@pytest.mark.parametrize(
    "text",
    [
        "ftp://example.com/",
        "file:///etc/passwd",
        "example.com",
        "javascript:alert(1)",
        "http://",
        "http://user:word@example.com/",
        "http://user@example.com/",
        "http://example.com:99999/",
        "http://[::1/",
        "https://example.com/" + "x" * 5000,
        "",
    ],
)
def test_what_is_no_web_address_is_told(text: str) -> None:
    with pytest.raises(ToolError):
        web_url(text)


@pytest.fixture
async def site() -> AsyncIterator[StandIn]:
    async def page(request: web.Request) -> web.Response:
        return web.Response(text=f"page {request.path}", content_type="text/html")

    async with stand_in([web.get("/{path:.*}", page)]) as standing:
        yield standing


def open_to(*sites: StandIn) -> AddressGuard:
    return AddressGuard(frozenset(site.endpoint for site in sites))


async def test_a_page_is_fetched_under_our_name_without_cookies(site: StandIn) -> None:
    site.trouble.append(says(b"1", Set_Cookie="a=b; Path=/"))
    guard = open_to(site)
    await fetch(f"{site.url}/one", guard)
    fetched = await fetch(f"{site.url}/two#part", guard)
    assert fetched.content == b"page /two"
    assert (fetched.content_type, fetched.url) == ("text/html", f"{site.url}/two")
    assert site.asked[-1].headers["user-agent"] == USER_AGENT
    assert not any("cookie" in asked.headers for asked in site.asked)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1", "127.1"],
)
async def test_this_machine_is_not_reached(site: StandIn, host: str) -> None:
    with pytest.raises(ToolError):
        await fetch(f"http://{host}:{site.port}/", AddressGuard())
    assert site.asked == []


async def test_the_allowance_is_for_one_port_only(site: StandIn) -> None:
    async with stand_in([]) as other:
        with pytest.raises(ToolError, match="not on the public internet"):
            await fetch(f"{other.url}/", open_to(site))
        assert other.asked == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_leads_to_no_closed_place(site: StandIn, host: str, status: int) -> None:
    async with stand_in([]) as other:
        site.trouble.append(moved(f"http://{host}:{other.port}/secret", status))
        with pytest.raises(ToolError, match="not on the public internet") as refused:
            await fetch(f"{site.url}/", open_to(site))
        assert other.asked == []
        assert f":{other.port}/secret is not" in str(refused.value)


async def test_a_redirect_to_an_unknown_host_names_that_host(site: StandIn) -> None:
    site.trouble.append(moved("http://no-such-host.invalid/"))
    with pytest.raises(ToolError, match=r"no-such-host\.invalid is not known"):
        await fetch(f"{site.url}/", open_to(site))


@pytest.mark.parametrize(
    "target", ["file:///etc/passwd", "ftp://x/", "http://u:p@127.0.0.1/", "http://[x/"]
)
async def test_a_redirect_leads_to_no_other_scheme(site: StandIn, target: str) -> None:
    site.trouble.append(moved(target))
    with pytest.raises(ToolError):
        await fetch(f"{site.url}/", open_to(site))


async def test_redirects_are_followed_and_counted(site: StandIn) -> None:
    site.trouble.extend([moved("/a"), moved("b?c=1", 307)])
    fetched = await fetch(f"{site.url}/start", open_to(site))
    assert fetched.url == f"{site.url}/b?c=1"
    site.trouble.extend([moved("/again")] * 9)
    with pytest.raises(ToolError, match="more than 5 times"):
        await fetch(f"{site.url}/start", open_to(site))


async def test_a_name_is_judged_by_what_it_resolves_to_when_it_is_connected(site: StandIn) -> None:
    guard = open_to(site)
    assert await guard.addresses("127.0.0.1", site.port) == ("127.0.0.1",)
    with pytest.raises(RefusedAddress):
        await guard.addresses("localhost", 1)
    # past every check of the name: the connector itself refuses the address
    async with ClientSession(connector=AddressGuard().connector()) as session:
        with pytest.raises(OSError, match="public internet"):
            await session.get(f"http://localhost:{site.port}/")
    assert site.asked == []


async def test_too_much_is_not_loaded(site: StandIn) -> None:
    limits = FetchLimits(bytes_max=1000)
    for trouble in (endless, says(b"x" * 1001)):
        site.trouble.append(trouble)
        with pytest.raises(ToolError, match="larger than"):
            await fetch(f"{site.url}/", open_to(site), limits=limits)


async def test_a_packed_page_counts_by_what_is_in_it(site: StandIn) -> None:
    import gzip

    site.trouble.append(says(gzip.compress(b"0" * 10_000_000), Content_Encoding="gzip"))
    with pytest.raises(ToolError, match="larger than"):
        await fetch(f"{site.url}/", open_to(site), limits=FetchLimits(bytes_max=1_000_000))


async def test_a_silent_page_is_given_up(site: StandIn) -> None:
    site.trouble.append(silent)
    with pytest.raises(ToolError, match=r"within 0\.2 s"):
        await fetch(f"{site.url}/", open_to(site), limits=FetchLimits(seconds_max=0.2))


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, "does not let"),
        (404, "no such page"),
        (418, "418"),
        (429, "later"),
        (500, "later"),
        (204, "without content"),
    ],
)
async def test_an_error_says_what_to_do(site: StandIn, status: int, said: str) -> None:
    site.trouble.append(refusal(status))
    with pytest.raises(ToolError, match=said):
        await fetch(f"{site.url}/", open_to(site))


async def test_an_unknown_host_is_told() -> None:
    with pytest.raises(ToolError, match=r"not known|not on the public"):
        await fetch("http://nowhere.invalid/", AddressGuard())
