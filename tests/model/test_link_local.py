"""Addresses that notices are not sent to, in every spelling."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.model.error import InvalidRequest
from ullage.model.link_local import is_link_local, literal_address
from ullage.model.notice import check_host

METADATA = (
    "169.254.169.254",
    "169.254.169.254.",
    "2852039166",
    "0xa9fea9fe",
    "0XA9.0xfe.0xa9fe",
    "0251.0376.0251.0376",
    "169.254.43518",
    "169.16689662",
    "\uff11\uff16\uff19.254.169.254",
    "169\u3002254\u3002169\u3002254",
    "①⑥⑨.254.169.254",
    "[fe80::1]",
    "[fe80::1%25eth0]",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[::169.254.169.254]",
    "[64:ff9b::a9fe:a9fe]",
    "[2002:a9fe:a9fe::]",
    "[fd00:ec2::254]",
    "168.63.129.16",
    "100.100.100.200",
    "someone@169.254.169.254",
)
OTHERS = (
    *("example.com", "127.0.0.1", "10.0.0.1", "[::1]", "[2001:db8::1]", "169.255.0.1", "1691", "169.254"),
    *("x.0xa9", "0xzz", "256.1.1.1", "1.2.3.4.5", "\u00b2", "1..2", ""),
)


@pytest.mark.parametrize("host", METADATA)
def test_addresses_of_the_machine_itself_are_refused_in_a_url(host: str) -> None:
    with pytest.raises(InvalidRequest, match="which is link-local or of the metadata of a cloud"):
        check_host(f"http://{host}:80/latest/meta-data", ["*"])


@pytest.mark.parametrize("host", OTHERS)
def test_other_hosts_are_not(host: str) -> None:
    check_host(f"http://{host}/", ["*"])


def test_an_operator_allows_one_by_its_whole_name_only() -> None:
    check_host("http://169.254.10.1/x", ["*", "169.254.10.1"])
    check_host("http://[FE80::7]/x", ["fe80::7"])
    for allowed in (["*"], ["169.254.*"], ["169.254.10.?"]):
        with pytest.raises(InvalidRequest, match="unless notify_hosts names exactly this host"):
            check_host("http://169.254.10.1/x", allowed)


@given(st.integers(0, 2**32 - 1))
def test_a_number_is_the_address_that_it_is(value: int) -> None:
    address = ip_address(value)
    assert {literal_address(str(value)), literal_address(hex(value)), literal_address(str(address))} == {address}
    assert is_link_local(address) == is_link_local(ip_address(f"::ffff:{address}"))


@given(st.text(max_size=12))
def test_no_text_is_an_error(text: str) -> None:
    literal_address(text)
