"""Runs a Python function: is given its source, then calls it, over HTTP/1.1.

    activator ── POST /load {revision, files, module, function} ──> imported, or why not
              ── POST /call  params as JSON ─────────────────────> main(params) as JSON, or why not
              ── POST /knows, /held  x-function-call ────────────> whether a call was seen here; what came of it

It listens before anything else happens and tells so, and imports only what the interpreter has in itself until then:
what a socket and a thread need is in C, while `socket`, `threading` and `http.server` take longer to import than all
of the rest takes to start. Only who knows the pod's token is answered: its hash is in the environment.
"""

import _signal
import _socket
import _thread
import posix
import sys

try:
    from _sha2 import sha256
except ImportError:  # before 3.12
    from _sha256 import sha256

MOST_HEAD = 65536

environ = {name.decode(): value.decode("utf-8", "replace") for name, value in posix.environ.items()}
token_hash = environ.get("FUNCTION_TOKEN_SHA256", "")
folder = environ.get("FUNCTION_FOLDER", "/tmp/function")

# What came of calls that have a name, as long as there is room.
MOST_HELD = 256
MOST_HELD_BYTES = 8 << 20

lock = _thread.allocate_lock()
current = _thread._local()
held = {}
held_bytes = 0
under_way = 0
is_ending = False
revision = None
handler = None
load_failure = None


def end(_signal_number, _frame):
    """SIGTERM: what is under way is finished first."""
    global is_ending
    is_ending = True
    if under_way == 0:
        posix._exit(0)


def main():
    sys.stdout, sys.stderr = Tagged(sys.stdout, "out"), Tagged(sys.stderr, "err")
    _signal.signal(_signal.SIGTERM, end)
    address = environ.get("FUNCTION_ADDRESS", "")
    port = int(environ.get("FUNCTION_PORT", "8080"))
    try:
        server = _socket.socket(_socket.AF_INET6, _socket.SOCK_STREAM)
        server.setsockopt(_socket.IPPROTO_IPV6, _socket.IPV6_V6ONLY, 0)
        server.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
        server.bind((f"::ffff:{address}" if address else "::", port))
    except OSError:
        server = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        server.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
        server.bind((address or "0.0.0.0", port))
    server.listen(1024)
    ready = environ.get("FUNCTION_READY", "")
    if ready:
        _thread.start_new_thread(tell, (ready,))
    # While the activator connects.
    _thread.start_new_thread(__import__, ("json",))
    while True:
        descriptor, _ = server._accept()
        _thread.start_new_thread(serve, (_socket.socket(fileno=descriptor),))


def tell(ready):
    """Tells the activator that this pod listens; should that fail, it finds out by itself, later."""
    try:
        host, _, port = ready.rpartition(":")
        host = host.strip("[]")
        family = _socket.AF_INET6 if ":" in host else _socket.AF_INET
        connection = _socket.socket(family, _socket.SOCK_STREAM)
        connection.connect((host, int(port)))
        connection.send(token_hash.encode() + b"\n")
        connection.close()
    except OSError:
        pass


def serve(connection):
    connection.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
    rest = b""
    try:
        while True:
            while (end_of_head := rest.find(b"\r\n\r\n")) < 0:
                if len(rest) > MOST_HEAD or not (data := connection.recv(MOST_HEAD)):
                    return
                rest += data
            lines = rest[:end_of_head].split(b"\r\n")
            path = lines[0].split(b" ")[1]
            headers = {}
            for line in lines[1:]:
                name, _, value = line.partition(b":")
                headers[name.lower()] = value.strip()
            length, token = int(headers.get(b"content-length", 0)), headers.get(b"x-function-token", b"")
            body, rest = rest[end_of_head + 4 :], b""
            if len(body) < length:
                pieces, missing = [body], length - len(body)
                while missing > 0:
                    if not (data := connection.recv(min(missing, 1 << 20))):
                        return
                    pieces.append(data)
                    missing -= len(data)
                body = b"".join(pieces)
            elif len(body) > length:
                body, rest = body[:length], body[length:]
            if sha256(token).hexdigest() != token_hash:
                answer(connection, 401, {"error": "Unauthorized", "message": "only the activator is answered"})
                return
            work(connection, path, headers, body)
    except (OSError, ValueError, IndexError):
        pass
    finally:
        connection.close()


def work(connection, path, headers, body):
    global under_way
    with lock:
        under_way += 1
    try:
        name = headers.get(b"x-function-call")
        if path == b"/load":
            answer(connection, *load(body))
        elif path == b"/call" and name:
            call_once(connection, name, headers, body)
        elif path == b"/call":
            send(connection, call(connection, headers, body))
        elif path == b"/knows":
            answer(connection, 200 if name in held else 404, {})
        elif path == b"/held":
            send(connection, what_came_of(name) or (404, b"{}"))
        else:
            answer(connection, 404, {"error": "NotFound", "message": "there are /load, /call, /knows and /held"})
    finally:
        with lock:
            under_way -= 1
            if is_ending and under_way == 0:
                posix._exit(0)


def call_once(connection, name, headers, body):
    """A call with a name: made if it is the first of this name."""
    global held_bytes
    entry = [_thread.allocate_lock(), None]
    entry[0].acquire()
    with lock:
        known = held.setdefault(name, entry)
    if known is not entry:
        send(connection, what_came_of(name) or (409, b'{"error": "Forgotten", "message": "the call was made before"}'))
        return
    try:
        entry[1] = call(connection, headers, body)
    finally:
        with lock:
            if entry[1] and entry[1][0] == 200:
                held_bytes += len(entry[1][1])
            else:
                # A call that failed may be made again.
                del held[name]
            done = [other for other, (busy, _) in held.items() if not busy.locked()]
            while done and (len(held) > MOST_HELD or held_bytes > MOST_HELD_BYTES):
                _, oldest = held.pop(done.pop(0))
                held_bytes -= len(oldest[1])
        entry[0].release()
    send(connection, entry[1])


def what_came_of(name):
    """What came of a call with a name, once it has ended."""
    with lock:
        entry = held.get(name)
    if entry is None:
        return None
    with entry[0]:
        return entry[1]


def load(body):
    """Imports the source, once."""
    import json

    global revision, handler, load_failure
    wanted = json.loads(body)
    with lock:
        if revision == wanted["revision"]:
            return (500, load_failure) if load_failure else (200, {})
        if revision is not None:
            return 409, {"error": "WrongRevision", "message": f"this pod runs {revision}"}
        revision = wanted["revision"]
    try:
        for path, text in wanted["files"].items():
            write(path, text)
        sys.dont_write_bytecode = True
        sys.path.insert(0, folder)
        posix.chdir(folder)
        __import__(wanted["module"])
        found = getattr(sys.modules[wanted["module"]], wanted["function"], None)
        if not callable(found):
            module, name = wanted["module"], wanted["function"]
            load_failure = {"error": "NoHandler", "message": f"module {module} has no function {name}"}
        handler = found
    except BaseException as error:
        load_failure = failure("ImportFailed", error)
    return (500, load_failure) if load_failure else (200, {})


def write(path, text):
    made = folder
    for part in ["", *path.split("/")[:-1]]:
        made = f"{made}/{part}" if part else made
        try:
            posix.mkdir(made)
        except FileExistsError:
            pass
    with open(f"{folder}/{path}", "w", encoding="utf-8") as file:
        file.write(text)


def call(connection, headers, body):
    """The status and the body of the answer, or nothing, if it was streamed."""
    import json

    if handler is None:
        return 500, dumped(load_failure or {"error": "NotLoaded", "message": "nothing was loaded yet"})
    try:
        params = json.loads(body) if body else {}
    except (ValueError, RecursionError) as error:
        return 400, dumped({"error": "NotJSON", "message": f"the parameters are not JSON: {error}"})
    current.request = headers.get(b"x-request-id", b"").decode("latin-1")
    try:
        result = handler(params, context(headers)) if takes_context() else handler(params)
        if hasattr(result, "__next__"):
            return stream(connection, result, json)
    except BaseException as error:
        return 500, dumped(failure("Raised", error))
    finally:
        sys.stdout.end()
        sys.stderr.end()
        current.request = ""
    try:
        return 200, json.dumps(result, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        message = f"what {handler.__name__} returned is not JSON: {error}"
        return 500, dumped({"error": "NotJSON", "message": message})


def takes_context():
    code = getattr(handler, "__code__", None)
    return code is not None and code.co_argcount > 1 and code.co_varnames[1] == "context"


def context(headers):
    """What a call is, for a function that asks: `main(params, context)`."""
    text = lambda name: headers.get(name, b"").decode("latin-1")
    named = {"requestId": b"x-request-id", "traceparent": b"traceparent", "callId": b"x-function-call"}
    found = {name: text(header) for name, header in named.items()}
    found["attempt"] = int(headers.get(b"x-function-attempt", 1))
    found["revision"] = revision
    # CloudEvents 1.0: what an event says of itself.
    found["event"] = {name[3:].decode("latin-1"): text(name) for name in headers if name.startswith(b"ce-")}
    return found


class Tagged:
    """A stream whose lines begin with the request of the call that writes them."""

    def __init__(self, stream, name):
        self.stream, self.name = stream, name

    def write(self, text):
        request = getattr(current, "request", "")
        if not request:
            return self.stream.write(text)
        *lines, rest = (getattr(current, self.name, "") + text).split("\n")
        setattr(current, self.name, rest)
        if lines:
            self.stream.write("".join(f"[{request}] {line}\n" for line in lines))
        return len(text)

    def end(self):
        """The call is over: what it wrote without an end of line is a line."""
        if getattr(current, self.name, ""):
            self.write("\n")

    def __getattr__(self, name):
        return getattr(self.stream, name)


def stream(connection, pieces, json):
    """What a generator yields, as it does: texts as they are, everything else as a line of JSON."""
    connection.sendall(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    try:
        for piece in pieces:
            if isinstance(piece, str):
                piece = piece.encode()
            elif not isinstance(piece, bytes):
                piece = json.dumps(piece).encode() + b"\n"
            if piece:
                connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
    except BaseException as error:
        # It has begun to answer, so breaking off is all that is left to say.
        print(failure("Raised", error)["traceback"], file=sys.stderr)
        raise OSError("broken off") from error
    connection.sendall(b"0\r\n\r\n")


def failure(kind, error):
    """An error as its caller reads it: without the frames of this file."""
    import traceback

    trace = error.__traceback__
    while trace and (trace.tb_frame.f_code.co_filename == __file__ or "importlib" in trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace)).strip()
    message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, SystemExit):
        message = f"the function exited with {error.code}"
    return {"error": kind, "message": message, "traceback": text}


def dumped(content):
    import json

    return json.dumps(content).encode()


def answer(connection, status, content):
    send(connection, (status, dumped(content)))


def send(connection, made):
    """Sends an answer; nothing, if it was streamed."""
    if made is None:
        return
    status, body = made
    connection.sendall(
        b"HTTP/1.1 %d \r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)
    )


main()
