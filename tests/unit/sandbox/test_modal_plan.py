"""What is asked of Modal: names, and the network."""

from dataclasses import replace

import pytest

from sandbox.modal.plan import Network, legal, sandbox_name
from tests.integration.sandbox.modal_stage import PLAN


@pytest.mark.parametrize(
    "thread_id",
    [
        "C0123ABC.1700000000.000100",
        "1234567890123456789",
        "0198c0de-aaaa-7bbb-8ccc-ddddeeeeffff",
        "x" * 100,
    ],
)
def test_names_are_legal_and_differ(thread_id: str) -> None:
    name = sandbox_name(thread_id)
    assert 0 < len(name) <= 63
    assert all(sign.isalnum() or sign in "._-" for sign in name)
    assert name != sandbox_name(thread_id + "y")
    assert legal("a b/c:d") != legal("a_b/c:d")


@pytest.mark.parametrize(
    ("egress", "network"),
    [
        ((), Network(is_blocked=True)),
        (("*",), Network()),
        (
            ("example.net", "192.0.2.0/24"),
            Network(networks=["192.0.2.0/24"], names=["example.net"]),
        ),
        (("*.example.com",), Network(names=["*.example.com"])),
    ],
)
def test_the_network_is_closed_unless_opened(egress: tuple[str, ...], network: Network) -> None:
    assert replace(PLAN, egress=egress).network() == network
