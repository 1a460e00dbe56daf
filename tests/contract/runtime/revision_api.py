"""The part of an API server that a pod with revisions speaks to: one ConfigMap to watch, Leases to write."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from mcp2026.api.names import SERVING_CONFIG_KEY

_LEASES = "/apis/coordination.k8s.io/v1/namespaces/team-a/leases"


class RevisionApi:
    """Serves the ConfigMap `model-serving` of the namespace `team-a` on a port of its own."""

    def __init__(self, document: str = "") -> None:
        self.leases: dict[str, dict[str, str]] = {}
        """The annotations of each Lease by its name."""
        self.watches = 0
        """How many have begun so far."""
        self._document = document
        self._version = 1
        self._changed = threading.Condition()
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                api.watch(self)

            def do_PATCH(self) -> None:
                api.write_lease(self, self.path.rpartition("/")[2])

            def do_POST(self) -> None:
                api.write_lease(self, None)

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def put(self, document: str) -> None:
        """Change the ConfigMap."""
        with self._changed:
            self._document = document
            self._version += 1
            self._changed.notify_all()

    def wait_for_lease(self, name: str, seconds: float, **annotations: str) -> None:
        """Wait until the Lease has these annotations; `_` stands for a dash."""
        wanted = {f"mcp2026.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
        with self._changed:
            met = self._changed.wait_for(lambda: wanted.items() <= self.leases.get(name, {}).items(), seconds)
        assert met, self.leases

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._server.server_close()

    def watch(self, request: BaseHTTPRequestHandler) -> None:
        """Answer a watch: what there is now, then each change, until its time is over."""
        seconds = float(request.path.partition("timeoutSeconds=")[2].partition("&")[0])
        end = time.monotonic() + seconds
        request.send_response(200)
        request.send_header("Content-Type", "application/json")
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        told = 0
        with self._changed:
            self.watches += 1
            self._changed.notify_all()
        while True:
            with self._changed:
                while self._version == told and (left := end - time.monotonic()) > 0:
                    self._changed.wait(left)
                kind, fresh = ("MODIFIED" if told else "ADDED"), self._version != told
                told, document = self._version, self._document
            if not fresh:
                break
            config_map = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "model-serving", "resourceVersion": str(told)},
                "data": {SERVING_CONFIG_KEY: document},
            }
            line = json.dumps({"type": kind, "object": config_map}).encode() + b"\n"
            try:
                request.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            except OSError:
                return
        request.wfile.write(b"0\r\n\r\n")

    def write_lease(self, request: BaseHTTPRequestHandler, name: str | None) -> None:
        """Merge what is sent into the Lease `name`, which must be there; make a new one if `name` is None."""
        lease = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        assert request.path.startswith(_LEASES)
        with self._changed:
            status = 404 if name is not None and name not in self.leases else 200
            if name is None and lease["metadata"]["name"] in self.leases:
                status = 409
            if status == 200:
                kept = self.leases.setdefault(lease["metadata"]["name"], {})
                for key, value in lease["metadata"]["annotations"].items():
                    if value is None:
                        kept.pop(key, None)
                    else:
                        kept[key] = value
                self._changed.notify_all()
        body = json.dumps(lease if status == 200 else {"kind": "Status", "code": status}).encode()
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)
