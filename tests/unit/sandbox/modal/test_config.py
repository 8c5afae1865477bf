"""What is asked of Modal: names, and the network."""

from dataclasses import replace

import pytest

from sandbox.modal.config import NetworkRules, legal_name, sandbox_name
from tests.support.modal_stage import PLAN


@pytest.mark.parametrize(
    "thread_id",
    ["C0123ABC.1700000000.000100", "1234567890123456789", "0198c0de-aaaa-7bbb-8ccc-ddddeeeeffff", "x" * 100],
)
def test_names_are_legal_and_differ(thread_id: str) -> None:
    name = sandbox_name(thread_id, after="")
    assert 0 < len(name) <= 63
    assert all(sign.isalnum() or sign in "._-" for sign in name)
    assert name != sandbox_name(thread_id + "y", after="")
    assert name != sandbox_name(thread_id, after="sb-1") != sandbox_name(thread_id, after="sb-2")
    assert legal_name("a b/c:d") != legal_name("a_b/c:d")


@pytest.mark.parametrize(
    ("egress", "network"),
    [
        ((), NetworkRules(is_blocked=True)),
        (("*",), NetworkRules()),
        (("example.net", "192.0.2.0/24"), NetworkRules(networks=["192.0.2.0/24"], names=["example.net"])),
        (("*.example.com",), NetworkRules(names=["*.example.com"])),
    ],
)
def test_the_network_is_closed_unless_opened(egress: tuple[str, ...], network: NetworkRules) -> None:
    assert replace(PLAN, egress=egress).network() == network
