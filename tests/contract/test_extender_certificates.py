"""The verbs over TLS: clients need a certificate of the CA, and certificates are replaced while it serves."""

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from mcp2026.scheduler_extender.adapters.certificates import ServerCertificates
from mcp2026.scheduler_extender.errors import CertificateError
from mcp2026.scheduler_extender.settings import TlsFiles


class Authority:
    """A CA that writes certificates with their keys into a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.file = folder / f"{name}.crt"
        self.file.write_bytes(
            self._sign(self.name, self.key, ca=True).public_bytes(serialization.Encoding.PEM)
        )

    def issue(self, name: str, usage: x509.ObjectIdentifier) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._sign(subject, key, ca=False, usage=usage)
        paths = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        paths[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return paths

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *,
        ca: bool,
        usage: x509.ObjectIdentifier | None = None,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if usage is not None:
            builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self.key, hashes.SHA256())


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ca")


@pytest.fixture
def certificates(authority: Authority) -> ServerCertificates:
    certificate, key = authority.issue("server", ExtendedKeyUsageOID.SERVER_AUTH)
    return ServerCertificates(TlsFiles(certificate, key, authority.file))


@pytest.fixture
async def port(certificates: ServerCertificates) -> AsyncIterator[int]:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=certificates.context).start()
    yield int(runner.addresses[0][1])
    await runner.cleanup()


async def get(port: int, trusted: Path, client: tuple[Path, Path] | None) -> tuple[bytes, bytes]:
    """The last line of the answer, and the certificate that the server showed."""
    context = ssl.create_default_context(cafile=trusted)
    if client is not None:
        context.load_cert_chain(*client)
    reader, writer = await asyncio.open_connection("localhost", port, ssl=context)
    try:
        shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        answer = await reader.read()
    finally:
        writer.close()
    return answer.rpartition(b"\r\n")[2], shown


async def test_a_client_of_the_ca_is_served(authority: Authority, port: int) -> None:
    client = authority.issue("scheduler", ExtendedKeyUsageOID.CLIENT_AUTH)
    assert (await get(port, authority.file, client))[0] == b"ok"


async def test_a_client_without_a_certificate_or_of_another_ca_is_not(
    authority: Authority, port: int, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "other").issue("scheduler-of-other", ExtendedKeyUsageOID.CLIENT_AUTH)
    for client in (None, other):
        answer = b""  # with TLS 1.3 the client learns of the refusal, if at all, when it reads
        with suppress(ssl.SSLError, ConnectionError):
            answer, _ = await get(port, authority.file, client)
        assert answer == b""


async def test_a_renewed_certificate_is_shown_to_new_connections_and_a_bad_one_never(
    authority: Authority, certificates: ServerCertificates, port: int
) -> None:
    client = authority.issue("scheduler", ExtendedKeyUsageOID.CLIENT_AUTH)
    _, first = await get(port, authority.file, client)
    authority.issue("server", ExtendedKeyUsageOID.SERVER_AUTH)
    certificates.look()
    _, second = await get(port, authority.file, client)
    assert first != second
    (authority.folder / "server.crt").write_text("not a certificate")
    certificates.look()
    assert (await get(port, authority.file, client)) == (b"ok", second)


def test_files_that_cannot_be_used_are_named(authority: Authority) -> None:
    certificate, _ = authority.issue("server", ExtendedKeyUsageOID.SERVER_AUTH)
    _, another = authority.issue("another", ExtendedKeyUsageOID.SERVER_AUTH)
    with pytest.raises(CertificateError, match=r"another\.key.*its own key"):
        ServerCertificates(TlsFiles(certificate, another, authority.file))
