"""A server's certificate is checked, and one that is not trusted is not asked again."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.client_peer import Peer
from tests.unit.test_client_delivery import deliver, usage
from tidemark.client import ClientError, Result

# For 127.0.0.1 only, signed by itself, until 2126. It protects nothing: everybody has it.
KEY_AND_CERTIFICATE = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgjKmXilkvh+Dui7+q
CKbu/cAJyPUg7NvKPKhOscoTg26hRANCAAQyhDkgW5e5nVeSJ34GVGUtPmXVk4eC
2gKeS0eF7zNm9O7xaRLEwpEjg5terlw6dvKpMCUWbu9ZC64Cvs+4QTgI
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBnjCCAUOgAwIBAgIULjKix69f9EZKn/286Q74/gTokjQwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJMTI3LjAuMC4xMCAXDTI2MTExNTAzNTYzN1oYDzIxMjYxMDIy
MDM1NjM3WjAUMRIwEAYDVQQDDAkxMjcuMC4wLjEwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAAQyhDkgW5e5nVeSJ34GVGUtPmXVk4eC2gKeS0eF7zNm9O7xaRLEwpEj
g5terlw6dvKpMCUWbu9ZC64Cvs+4QTgIo3EwbzAdBgNVHQ4EFgQUljYS/i10y0wU
NOq8oAux+EPNgqgwHwYDVR0jBBgwFoAUljYS/i10y0wUNOq8oAux+EPNgqgwDwYD
VR0RBAgwBocEfwAAATALBgNVHQ8EBAMCAoQwDwYDVR0TAQH/BAUwAwEB/zAKBggq
hkjOPQQDAgNJADBGAiEAjp50lD5IqFJ16M0Q5tTU7eG0MdKBrFOY+5qUCe/0F2AC
IQDyqueoBMH/zDpHyYmuU7lDpDZ0nTQcpjE3gGcc8gXe1A==
-----END CERTIFICATE-----
"""


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    path = tmp_path / "server.pem"
    path.write_text(KEY_AND_CERTIFICATE)
    return path


@pytest.fixture
def peer(pem: Path) -> Iterator[Peer]:
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(pem)
    with Peer(tls=server_side) as running:
        yield running


@pytest.mark.parametrize("way", ["send", "async send"])
def test_a_certificate_that_is_not_trusted_is_final(peer: Peer, way: str) -> None:
    [error] = deliver(way, peer.url, [usage(1)])
    assert isinstance(error, ClientError)
    assert error.code == "untrusted_certificate"
    assert "self-signed certificate" in error.message
    assert peer.bodies == []


@pytest.mark.parametrize("way", ["send", "async send"])
def test_a_private_authority_is_trusted_when_told_so(peer: Peer, pem: Path, way: str) -> None:
    trusting = ssl.create_default_context(cafile=pem)
    [result] = deliver(way, peer.url, [usage(1)], ssl_context=trusting)
    assert isinstance(result, Result)
    assert result.is_stored
