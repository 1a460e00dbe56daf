"""One URL says where a server is and what is spoken there."""

import pytest

from mcp2026.client.addresses import Address, Transport, parse_address

HTTP1, HTTP2, GRPC = Transport


@pytest.mark.parametrize(
    ("url", "http2", "address"),
    [
        ("http://localhost:8080", False, Address(HTTP1, "localhost", 8080, "")),
        ("http://localhost:8080/", False, Address(HTTP1, "localhost", 8080, "")),
        ("http://localhost", False, Address(HTTP1, "localhost", 80, "")),
        ("http://localhost:8080/below/here/", False, Address(HTTP1, "localhost", 8080, "", "/below/here")),
        ("http://localhost:8080", True, Address(HTTP2, "localhost", 8080, "")),
        ("h2://[::1]:8080", False, Address(HTTP2, "::1", 8080, "")),
        ("grpc://model.default:8081", False, Address(GRPC, "model.default", 8081, "")),
        ("unix:///run/mcp.sock", False, Address(HTTP1, "", 0, "/run/mcp.sock")),
        ("unix:///run/mcp.sock", True, Address(HTTP2, "", 0, "/run/mcp.sock")),
        ("h2+unix:///run/a%20b.sock", False, Address(HTTP2, "", 0, "/run/a b.sock")),
        ("grpc+unix:///run/mcp.sock", False, Address(GRPC, "", 0, "/run/mcp.sock")),
    ],
)
def test_a_url_is_read(url: str, http2: bool, address: Address) -> None:
    assert parse_address(url, http2=http2) == address


@pytest.mark.parametrize(
    ("url", "http2", "says"),
    [
        ("localhost:8080", False, "no known scheme"),
        ("https://localhost", False, "TLS"),
        ("grpc://localhost", False, "names no port"),
        ("grpc://localhost:8081/below", False, "has a path"),
        ("grpc://localhost:8081", True, "no meaning for gRPC"),
        ("http://", False, "names no host"),
        ("http://me:secret@localhost", False, "more than an address"),
        ("http://localhost?a=b", False, "more than an address"),
        ("http://localhost:99999", False, "out of range"),
        ("unix://run/mcp.sock", False, "names no socket"),
        ("unix:", False, "names no socket"),
    ],
)
def test_another_url_is_refused_by_what_is_wrong(url: str, http2: bool, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_address(url, http2=http2)


@pytest.mark.parametrize(
    ("url", "authority", "target"),
    [
        ("http://localhost:8080", "localhost:8080", "localhost:8080"),
        ("http://localhost", "localhost", "localhost:80"),
        ("h2://[::1]:8080", "[::1]:8080", "dns:///[::1]:8080"),
        ("grpc+unix:///run/mcp.sock", "localhost", "unix:/run/mcp.sock"),
    ],
)
def test_an_address_has_the_names_that_the_protocols_use(url: str, authority: str, target: str) -> None:
    address = parse_address(url)
    assert (address.authority, address.grpc_target) == (authority, target)
