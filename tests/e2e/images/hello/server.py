"""Serves /srv/www on port 8080 and says when it does."""

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

server = ThreadingHTTPServer(("", 8080), partial(SimpleHTTPRequestHandler, directory="/srv/www"))
print("serving", flush=True)
server.serve_forever()
