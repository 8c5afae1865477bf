"""Which addresses are on this machine."""

import ipaddress

from yarl import URL


def is_loopback(url: URL) -> bool:
    """Whether the address is on this machine."""
    host = url.host or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
