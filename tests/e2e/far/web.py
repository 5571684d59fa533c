"""The web servers of the far side: pages, redirects, a slow answer, a WebSocket, and git by HTTP."""

import base64
import hashlib
import os
import socketserver
import struct
import subprocess
import threading
from http.server import BaseHTTPRequestHandler

REDIRECTS = {
    "/redirect": "/hello",
    "/to-private": "http://10.1.2.3/",
    "/to-loopback": "http://127.0.0.1:9/",
    "/to-metadata": "http://169.254.169.254/latest/",
    "/to-blocked": "http://blocked.example/hello",
}


# A shop on two pages, for programs that read it.
SHOP = {
    "/shop.html": """<!doctype html><title>Shop</title><ul><li class="product"><span class="name">Tent</span>
<span class="price">$120.00</span></li><li class="product"><span class="name"> Compass </span>
<span class="price">$9.50</span></li></ul><a rel="next" href="shop-2.html">more</a>""",
    "/shop-2.html": """<!doctype html><title>Shop</title><ul><li class="product"><span class="name">Map</span>
<span class="price">$12.90</span></li><li class="product"><span class="name">Stove</span>
<span class="price">$48.00</span></li></ul>""",
}


class WebServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 1024

    def __init__(self, address, handler, tls):
        super().__init__(address, handler)
        self.tls = tls

    def finish_request(self, request, client):
        try:
            if self.tls:
                request = self.tls.wrap_socket(request, server_side=True)
            self.RequestHandlerClass(request, client, self)
        except OSError:
            pass  # the program broke off

    def handle_error(self, request, client):
        pass


class Web(BaseHTTPRequestHandler):
    # A server that closes after a request with `Connection: close`, and does not say so.
    protocol_version = "HTTP/1.1"
    folder = None
    halves = []
    go = threading.Event()

    def log_message(self, *_):
        pass

    def answer(self, body, status=200, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        path = self.path.split("?")[0]
        if path in REDIRECTS:
            self.answer(b"", 302, Location=REDIRECTS[path])
            if self.close_connection:
                self.connection.recv(1)  # a client that sends another request here gets no answer
        elif path in SHOP:
            self.answer(SHOP[path].encode(), **{"Content-Type": "text/html; charset=utf-8"})
        elif path == "/slow":
            self.slow()
        elif path == "/go":
            self.go.set()
            self.answer(b"gone\n")
        elif path == "/halves":
            self.answer(repr(self.halves).encode())
        elif path == "/ws":
            self.web_socket()
        elif path.startswith("/git/"):
            self.git(b"")
        else:
            self.answer(b"hello from far\n")

    def do_POST(self):
        if self.headers.get("Transfer-Encoding"):
            body = b"".join(iter(self.chunk, b""))
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path.startswith("/git/"):
            self.git(body)
        else:
            self.answer(body)

    def chunk(self):
        size = int(self.rfile.readline(), 16)
        piece = self.rfile.read(size)
        self.rfile.readline()
        return piece

    def slow(self):
        """The second half of the answer waits until somebody asks for /go."""
        self.send_response(200)
        self.send_header("Content-Length", "10")
        self.end_headers()
        self.wfile.write(b"first")
        self.wfile.flush()
        self.go.wait()
        self.wfile.write(b"later")

    def web_socket(self):
        """Sends each text message back, and then ends."""
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_response(101)
        for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accept)):
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        while True:
            kind, size = self.rfile.read(2)
            size &= 0x7F
            if size == 126:
                size = struct.unpack("!H", self.rfile.read(2))[0]
            mask = self.rfile.read(4)
            body = bytes(byte ^ mask[n % 4] for n, byte in enumerate(self.rfile.read(size)))
            head = bytes([kind, len(body)]) if len(body) < 126 else struct.pack("!BBH", kind, 126, len(body))
            self.wfile.write(head + body)
            if kind & 0xF == 8:
                return

    def git(self, body):
        """git http-backend, a CGI program."""
        path, _, query = self.path.partition("?")
        env = {
            **os.environ, "HOME": self.folder, "GIT_PROJECT_ROOT": self.folder, "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command, "PATH_INFO": path[len("/git"):], "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""), "REMOTE_USER": "far",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        done = subprocess.run(["git", "http-backend"], input=body, env=env, stdout=subprocess.PIPE)
        head, _, answer = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        status = int(headers.pop("Status", "200").split()[0])
        headers.pop("Content-Length", None)
        self.answer(answer, status, **headers)
