"""Data sets over https, from a server with an authority of its own, which breaks connections at will."""

import hashlib
import http.server
import ssl
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.contract.runtime.batch_process import Ended, run_batch

Model = Callable[[str], Path]


def _certificate(folder: Path) -> tuple[Path, Path]:
    """Write a certificate for 127.0.0.1 that is its own authority, and it with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    authority = folder / "authority.pem"
    authority.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    both = folder / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    both.write_bytes(private + authority.read_bytes())
    return authority, both


class Site:
    """What the server gives, and what it was asked for."""

    def __init__(self, folder: Path) -> None:
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.cuts: list[int] = []
        """After how many bytes of a body the next answers break off."""
        self.statuses: list[int] = []
        """Of the next answers, before any body."""
        self.ranges: list[str | None] = []
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.answer(self)

            def log_message(self, *arguments: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.authority, both = _certificate(folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(both)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"https://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        path = request.path.partition("?")[0]
        asked = request.headers.get("Range")
        self.ranges.append(asked)
        status = self.statuses.pop(0) if self.statuses else 200
        if path in self.redirects:
            request.send_response(302)
            request.send_header("Location", self.redirects[path])
            request.end_headers()
            return
        if status != 200 or path not in self.files:
            request.send_error(status if status != 200 else 404)
            return
        content = self.files[path]
        begin = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        request.send_response(206 if asked else 200)
        request.send_header("Content-Length", str(len(content) - begin))
        request.send_header("ETag", '"1"')
        request.end_headers()
        end = begin + self.cuts.pop(0) if self.cuts else len(content)
        request.wfile.write(content[begin:end])


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    path = tmp_path / "content.npy"
    np.save(path, np.arange(16_000, dtype=np.float32).reshape(1000, 16))
    site.files["/in.npy"] = path.read_bytes()
    yield site
    site.server.shutdown()
    site.server.server_close()


def run(model: Model, folder: Path, site: Site, url: str, *flags: str, trusted: bool = True) -> Ended:
    return run_batch(
        folder,
        *("--model-path", str(model("add")), "--input", url, "--output", str(folder / "out.npy"), *flags),
        environment={"SSL_CERT_FILE": str(site.authority)} if trusted else {},
    )


def test_a_signed_url_is_read_and_its_signature_is_told_nowhere(
    model: Model, tmp_path: Path, site: Site
) -> None:
    digest = hashlib.sha256(site.files["/in.npy"]).hexdigest()
    done = run(model, tmp_path, site, f"{site.url}/in.npy?signature=secret", "--input-sha256", digest)
    assert done.code == 0, done.log
    assert np.load(tmp_path / "out.npy")[-1, -1] == 16_000
    assert "secret" not in done.log


def test_a_transfer_that_breaks_goes_on_where_it_broke(model: Model, tmp_path: Path, site: Site) -> None:
    site.cuts = [20_000, 30_000]
    site.statuses = [503]
    done = run(model, tmp_path, site, f"{site.url}/in.npy")
    assert done.code == 0, done.log
    assert site.ranges == [None, None, "bytes=20000-", "bytes=50000-"]
    assert len(np.load(tmp_path / "out.npy")) == 1000


@pytest.mark.parametrize(
    ("path", "flags", "trusted", "code", "message"),
    [
        ("/none.npy", (), True, 3, "the server answers 404"),
        ("/in.npy", ("--input-sha256", "0" * 64), True, 3, "but --input-sha256 asks for 000"),
        ("/in.npy", (), False, 1, "SSL_CERT_FILE"),
        ("/plain.npy", (), True, 3, "it leads to http://"),
    ],
)
def test_what_is_wrong_is_named(
    model: Model,
    tmp_path: Path,
    site: Site,
    path: str,
    flags: tuple[str, ...],
    trusted: bool,
    code: int,
    message: str,
) -> None:
    site.redirects["/plain.npy"] = "http://127.0.0.1:1/in.npy"
    told = run(model, tmp_path, site, site.url + path, *flags, trusted=trusted)
    assert told.code == code, told.log
    assert message in told.termination["message"] or message in told.log
    assert not (tmp_path / "out.npy").exists()
