# A server as programs run one, for the tests of the way in. It must need nothing but Python itself.
import base64, hashlib, http.server, json, os, socket, struct, sys, time

sent = 0


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, address):
        pass


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *_):
        pass

    def say(self, text, status=200, headers=()):
        body = text.encode()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(body)

    def handle_one(self):
        global sent
        path, _, query = self.path.partition('?')
        if path == '/seen':
            seen = {name.lower(): value for name, value in self.headers.items()}
            self.say(json.dumps({'method': self.command, 'path': self.path, 'headers': seen}))
        elif path == '/body':
            digest, length = hashlib.sha256(), 0
            for piece in self.pieces():
                digest.update(piece)
                length += len(piece)
            self.say(json.dumps({'length': length, 'sha256': digest.hexdigest()}))
        elif path == '/cookies':
            cookies = ['id=7; Path=/; HttpOnly', 'deep=1; Path=/deep; Domain=example.com', '__Host-x=1; Path=/; Secure']
            self.say('set', headers=[('Set-Cookie', cookie) for cookie in cookies])
        elif path == '/to':
            self.say('', 302, [('Location', query)])
        elif path == '/headers':
            self.say('<p>page', headers=[tuple(pair.split('=', 1)) for pair in query.split('&')])
        elif path == '/big':
            self.send_response(200)
            self.send_header('Content-Length', query)
            self.end_headers()
            left, piece = int(query), bytes(65536)
            while left:
                self.wfile.write(piece[:left])
                sent += min(left, len(piece))
                left -= min(left, len(piece))
        elif path == '/sent':
            self.say(str(sent))
        elif path == '/silent':
            time.sleep(1000)
        elif path == '/drip':
            self.send_response(200)
            self.send_header('Content-Length', '2')
            self.end_headers()
            self.wfile.write(b'x')
            time.sleep(1000)
        elif path == '/trailers':
            self.wfile.write(b'HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n')
            self.send_response(200)
            self.send_header('Transfer-Encoding', 'chunked')
            self.send_header('Trailer', 'X-Sum')
            self.end_headers()
            self.wfile.write(b'3\r\nabc\r\n2\r\nde\r\n0\r\nX-Sum: 5\r\n\r\n')
        elif path == '/garbage':
            self.wfile.write(b'this is no HTTP\r\n\r\n')
            self.close_connection = True
        elif path == '/cut':
            self.send_response(200)
            self.send_header('Content-Length', '100')
            self.end_headers()
            self.wfile.write(b'only this')
            self.close_connection = True
        elif path == '/reset':
            self.wfile.write(b'HTTP/1.0 200 OK\r\n\r\nonly this')
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
            self.close_connection = True
            if query:
                self.connection.shutdown(socket.SHUT_WR)
                return
            # A copy keeps it open until this one is reset.
            time.sleep(0.3)  # what was sent is read before the reset drops it
            os.close(self.connection.detach())
        elif path == '/ws':
            self.websocket()
        elif path == '/raw':
            self.raw()
        elif os.path.isfile('/data/www' + path):
            kind = 'text/javascript' if path.endswith('.js') else 'text/html'
            self.say(open('/data/www' + path).read(), headers=[('Content-Type', kind), ('Service-Worker-Allowed', '/')])
        else:
            self.say('hello from ' + path)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_OPTIONS = handle_one

    def pieces(self):
        if self.headers.get('Transfer-Encoding', '').lower() == 'chunked':
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return
        left = int(self.headers.get('Content-Length', 0))
        while left:
            piece = self.rfile.read(min(left, 65536))
            left -= len(piece)
            yield piece

    def change(self, protocol, headers=()):
        self.send_response(101)
        self.send_header('Connection', 'Upgrade')
        self.send_header('Upgrade', protocol)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True

    # Every byte goes back; at the end a last word follows.
    def raw(self):
        self.change('raw')
        while piece := self.connection.recv(65536):
            self.connection.sendall(piece)
        self.connection.sendall(b'bye')

    # Short text messages go back.
    def websocket(self):
        accept = self.headers['Sec-WebSocket-Key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
        accept = base64.b64encode(hashlib.sha1(accept.encode()).digest()).decode()
        self.change('websocket', [('Sec-WebSocket-Accept', accept)])
        while len(head := self.rfile.read(2)) == 2:
            mask = self.rfile.read(4)
            text = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(head[1] & 127)))
            self.wfile.write(bytes([head[0], len(text)]) + text)
            if head[0] & 15 == 8:
                return


port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
host = sys.argv[2] if len(sys.argv) > 2 else '127.0.0.1'
if ':' in host:
    Server.address_family = 10
Server((host, port), Handler).serve_forever()
