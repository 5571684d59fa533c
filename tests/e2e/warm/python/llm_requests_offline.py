# No network: the errors of requests, urllib, sockets.
import requests, urllib.request, socket, re
try: requests.get('https://example.com', timeout=3)
except requests.exceptions.ConnectionError as e: print(type(e).__name__, re.sub(r'0x[0-9a-f]+', '0x', str(e)))
try: urllib.request.urlopen('http://example.com', timeout=3)
except Exception as e: print(repr(e))
try: socket.create_connection(('127.0.0.1', 9), 1)
except OSError as e: print(e)
print(requests.Request('GET', 'http://x/', params={'a': 'é'}).prepare().url, socket.gethostname() != '')
requests.get('not a url')
