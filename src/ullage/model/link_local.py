"""Addresses that only answer the machine itself: link-local ones, and those of the metadata services of clouds.

What they answer, such as credentials of the machine, is not for those who name a URL to a server.
"""

from __future__ import annotations

import unicodedata
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

_LOCAL = tuple(
    ip_network(text)
    for text in (
        "169.254.0.0/16",  # RFC 3927; metadata of AWS, Google Cloud, Azure, OpenStack and others
        "fe80::/10",  # RFC 4291
        "fd00:ec2::254/128",  # AWS
        "fd20:ce::254/128",  # Google Cloud
        "168.63.129.16/32",  # Azure
        "192.0.0.192/32",  # Oracle Cloud
        "100.100.100.200/32",  # Alibaba Cloud
    )
)
_NAT64 = ip_network("64:ff9b::/96")
_MOST_PARTS = 4
_BYTE, _WORD = 256, 32


def is_link_local(address: IPv4Address | IPv6Address) -> bool:
    """Return whether an address is one of these, also within one of IPv6."""
    return any(each in network for each in _meant(address) for network in _LOCAL if each.version == network.version)


def literal_address(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address that a host of a URL spells, as inet_aton(3) reads it too (`0xa9fea9fe`); None for a name."""
    text = unicodedata.normalize("NFKC", host).replace("\u3002", ".").rstrip(".")  # as IDNA reads it
    try:
        return ip_address(text)
    except ValueError:
        return _numeric(text)


def _meant(address: IPv4Address | IPv6Address) -> tuple[IPv4Address | IPv6Address, ...]:
    """Return the address, and those of IPv4 that it leads to."""
    if isinstance(address, IPv4Address):
        return (address,)
    plain = IPv6Address(int(address))  # without its zone
    low = IPv4Address(int(address) % 2**_WORD)
    inner = [plain.ipv4_mapped, plain.sixtofour, *(plain.teredo or ())]
    if plain in _NAT64 or int(plain) < 2**_WORD:  # the last: IPv4-compatible addresses
        inner.append(low)
    return (plain, *(each for each in inner if each is not None))


def _numeric(text: str) -> IPv4Address | None:
    """Return the address of up to four numbers, of which the last one fills the rest."""
    parts = text.split(".")
    numbers = [number for part in parts if (number := _number(part)) is not None]
    if len(numbers) != len(parts) or len(parts) > _MOST_PARTS:
        return None
    *first, last = numbers
    value = last
    for place, number in enumerate(first):
        value += number << (24 - 8 * place)
    fits = all(number < _BYTE for number in first) and last < _BYTE ** (_MOST_PARTS - len(first))
    return IPv4Address(value) if fits else None


def _number(text: str) -> int | None:
    """Return a number as C writes it: 169, 0xa9 or 0251."""
    base = 16 if text.lower().startswith("0x") else 8 if text.startswith("0") and text != "0" else 10
    try:
        return int(text, base) if text.isascii() and text.isalnum() else None
    except ValueError:
        return None
