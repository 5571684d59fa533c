"""A model on this host's loopback, which answers by a script: Anthropic's Messages API, and OpenAI's Chat
Completions and Responses.

It prints its port as the first line. Each further line of standard input is a command, and has one line of
answer:

  {"turns": [TURN, …], "only_with_tools": true|false}   the next answers; those left of before are dropped
  {"seen": true}                                        every request so far
  {"left": true}                                        how many turns were not taken
  {"release": true}                                     goes on with every answer that is held

A TURN has one of these, and what the lines below say:

  "text": "…"                 what the model says
  "tools": [{"name", "input"}]  what it calls, after the text if there is one
  "status": 429, "headers": {…}, "error": "…"   an error in the form of the provider
  "raw": "…", "type": "…"     this body, whatever it is, with this Content-Type

  "usage": {"input", "output", "cache_read", "cache_write"}, tokens, or null for an answer without usage
  "model": "…"                the model of the answer; without it, that of the request
  "cut": 3                    the connection breaks off after so many events of a stream; of another answer,
                              after so many bytes
  "hold": true                an answer waits after its first event, or before its body, until `release`

A request takes the next turn; when there is none, the answer is the text "done". With `only_with_tools`, a
request that offers no tools takes none: agents ask for titles in between. It ends when its input ends.
"""
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LOCK = threading.Lock()
RELEASED = threading.Condition(LOCK)
SEEN, TURNS = [], []
STATE = {"only_with_tools": False, "releases": 0}
USAGE = {"input": 10, "output": 5, "cache_read": 0, "cache_write": 0}
PATHS = {"/messages": "messages", "/chat/completions": "chat", "/responses": "responses"}
KINDS = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
         404: "not_found_error", 429: "rate_limit_error", 500: "api_error", 529: "overloaded_error"}


def take(body):
    with LOCK:
        if STATE["only_with_tools"] and not body.get("tools"):
            return {"text": "a title"}
        # A release counts from the moment at which the turn is taken.
        return TURNS.pop(0) | {"before": STATE["releases"]} if TURNS else {"text": "done"}


def wait_for_release(turn):
    with LOCK:
        RELEASED.wait_for(lambda: STATE["releases"] > turn["before"], timeout=60)


def pieces(text):
    """A text as a stream brings it: in two halves."""
    half = (len(text) + 1) // 2
    return [part for part in (text[:half], text[half:]) if part]


def calls(turn):
    return [(f"call_{number}_{call['name']}", call) for number, call in enumerate(turn.get("tools", []))]


class Messages:
    """Anthropic's Messages."""

    @staticmethod
    def usage(used, output):
        return {"input_tokens": used["input"], "output_tokens": output,
                "cache_creation_input_tokens": used["cache_write"],
                "cache_read_input_tokens": used["cache_read"]}

    @classmethod
    def head(cls, turn, model, used, output):
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [],
                   "stop_reason": None, "stop_sequence": None}
        return message if used is None else message | {"usage": cls.usage(used, output)}

    @staticmethod
    def reason(turn):
        return "tool_use" if turn.get("tools") else "end_turn"

    @classmethod
    def whole(cls, turn, model, used):
        blocks = [{"type": "text", "text": turn["text"]}] if turn.get("text") else []
        for key, call in calls(turn):
            blocks.append({"type": "tool_use", "id": key, "name": call["name"], "input": call["input"]})
        message = cls.head(turn, model, used, used and used["output"])
        return message | {"content": blocks, "stop_reason": cls.reason(turn)}

    @classmethod
    def events(cls, turn, model, used, asked):
        def event(kind, **data):
            return f"event: {kind}\ndata: {json.dumps({'type': kind} | data)}\n\n"

        yield event("message_start", message=cls.head(turn, model, used, 1))
        yield event("ping")
        blocks = []
        if turn.get("text"):
            deltas = [{"type": "text_delta", "text": part} for part in pieces(turn["text"])]
            blocks.append(({"type": "text", "text": ""}, deltas))
        for key, call in calls(turn):
            parts = pieces(json.dumps(call["input"]))
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in parts]
            block = {"type": "tool_use", "id": key, "name": call["name"], "input": {}}
            blocks.append((block, deltas))
        for index, (block, deltas) in enumerate(blocks):
            yield event("content_block_start", index=index, content_block=block)
            for delta in deltas:
                yield event("content_block_delta", index=index, delta=delta)
            yield event("content_block_stop", index=index)
        usage = {} if used is None else {"usage": {"output_tokens": used["output"]}}
        yield event("message_delta", delta={"stop_reason": cls.reason(turn), "stop_sequence": None}, **usage)
        yield event("message_stop")


class Chat:
    """OpenAI's Chat Completions."""

    @staticmethod
    def usage(used):
        prompt = used["input"] + used["cache_read"]
        return {"prompt_tokens": prompt, "completion_tokens": used["output"],
                "total_tokens": prompt + used["output"],
                "prompt_tokens_details": {"cached_tokens": used["cache_read"]}}

    @staticmethod
    def tools(turn):
        return [{"index": index, "id": key, "type": "function",
                 "function": {"name": call["name"], "arguments": json.dumps(call["input"])}}
                for index, (key, call) in enumerate(calls(turn))]

    @staticmethod
    def reason(turn):
        return "tool_calls" if turn.get("tools") else "stop"

    @classmethod
    def whole(cls, turn, model, used):
        message = {"role": "assistant", "content": turn.get("text")}
        if turn.get("tools"):
            message["tool_calls"] = cls.tools(turn)
        choice = {"index": 0, "message": message, "finish_reason": cls.reason(turn)}
        whole = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": model}
        usage = {} if used is None else {"usage": cls.usage(used)}
        return whole | {"choices": [choice]} | usage

    @classmethod
    def events(cls, turn, model, used, asked):
        wants_usage = (asked.get("stream_options") or {}).get("include_usage")
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model}

        def event(delta, reason=None):
            choice = {"index": 0, "delta": delta, "finish_reason": reason}
            return f"data: {json.dumps(head | {'choices': [choice]})}\n\n"

        yield event({"role": "assistant", "content": ""})
        for part in pieces(turn.get("text") or ""):
            yield event({"content": part})
        for call in cls.tools(turn):
            yield event({"tool_calls": [call]})
        yield event({}, cls.reason(turn))
        if wants_usage and used is not None:
            yield f"data: {json.dumps(head | {'choices': [], 'usage': cls.usage(used)})}\n\n"
        yield "data: [DONE]\n\n"


class Responses:
    """OpenAI's Responses."""

    @staticmethod
    def usage(used):
        of_input = used["input"] + used["cache_read"]
        return {"input_tokens": of_input, "output_tokens": used["output"],
                "input_tokens_details": {"cached_tokens": used["cache_read"]},
                "total_tokens": of_input + used["output"]}

    @classmethod
    def items(cls, turn):
        items = []
        if turn.get("text"):
            content = [{"type": "output_text", "text": turn["text"], "annotations": []}]
            items.append({"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
                          "content": content})
        for key, call in calls(turn):
            items.append({"type": "function_call", "id": f"fc_{key}", "call_id": key, "name": call["name"],
                          "arguments": json.dumps(call["input"]), "status": "completed"})
        return items

    @classmethod
    def whole(cls, turn, model, used):
        usage = {} if used is None else {"usage": cls.usage(used)}
        return {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": model,
                "output": cls.items(turn)} | usage

    @classmethod
    def events(cls, turn, model, used, asked):
        numbers = iter(range(10_000))

        def event(kind, **data):
            data = {"type": kind, "sequence_number": next(numbers)} | data
            return f"event: {kind}\ndata: {json.dumps(data)}\n\n"

        begun = {"id": "resp_1", "object": "response", "created_at": 1, "status": "in_progress",
                 "model": model, "output": []}
        yield event("response.created", response=begun)
        for index, item in enumerate(cls.items(turn)):
            empty = item | {"content": []} if item["type"] == "message" else item | {"arguments": ""}
            yield event("response.output_item.added", output_index=index, item=empty)
            at = {"output_index": index, "item_id": item["id"]}
            if item["type"] == "message":
                text = item["content"][0]["text"]
                part = {"type": "output_text", "text": "", "annotations": []}
                yield event("response.content_part.added", content_index=0, part=part, **at)
                for part in pieces(text):
                    yield event("response.output_text.delta", content_index=0, delta=part, **at)
                yield event("response.output_text.done", content_index=0, text=text, **at)
            else:
                for part in pieces(item["arguments"]):
                    yield event("response.function_call_arguments.delta", delta=part, **at)
                yield event("response.function_call_arguments.done", arguments=item["arguments"], **at)
            yield event("response.output_item.done", output_index=index, item=item)
        yield event("response.completed", response=cls.whole(turn, model, used))


FORMS = {"messages": Messages, "chat": Chat, "responses": Responses}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def body(self):
        if "chunked" not in self.headers.get("transfer-encoding", ""):
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        whole = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            whole += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return whole

    def note(self, body):
        headers = {name.lower(): value for name, value in self.headers.items()}
        with LOCK:
            SEEN.append({"method": self.command, "path": self.path, "headers": headers, "body": body})

    def answer(self, status, body, kind="application/json", headers=None, cut=None):
        self.send_response(status)
        for name, value in ({"content-type": kind} | (headers or {})).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if cut is None else body[:cut])
        self.close_connection = self.close_connection or cut is not None

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def do_GET(self):
        self.note(None)
        if self.path.endswith("/models"):
            return self.answer(200, json.dumps({"object": "list", "data": []}).encode())
        return self.answer(404, b"{}")

    do_HEAD = do_GET

    def do_POST(self):
        raw = self.body()
        try:
            body = json.loads(raw)
        except ValueError:
            body = {}
        self.note(body or raw.decode("utf-8", "replace"))
        path = self.path.split("?")[0]
        if path.endswith("/messages/count_tokens"):
            return self.answer(200, b'{"input_tokens": 10}')
        form = next((FORMS[name] for end, name in PATHS.items() if path.endswith(end)), None)
        if form is None:
            return self.answer(404, b"{}")
        turn = take(body)
        if "raw" in turn:
            body = turn["raw"].encode("utf-8", "surrogateescape")
            return self.answer(200, body, turn.get("type", "application/json"), cut=turn.get("cut"))
        if "status" in turn:
            text = turn.get("error", "as the script says")
            error = {"type": KINDS.get(turn["status"], "api_error"), "message": text}
            error = {"type": "error", "error": error} if form is Messages else {"error": error}
            return self.answer(turn["status"], json.dumps(error).encode(), headers=turn.get("headers"))
        used = turn.get("usage", {})
        used = None if used is None else USAGE | used
        model = turn.get("model") or body.get("model") or "stub"
        if not body.get("stream"):
            if turn.get("hold"):
                wait_for_release(turn)
            whole = json.dumps(form.whole(turn, model, used)).encode()
            return self.answer(200, whole, cut=turn.get("cut"))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for number, event in enumerate(form.events(turn, model, used, body)):
            if number == turn.get("cut"):
                self.close_connection = True
                return None
            if number == 1 and turn.get("hold"):
                wait_for_release(turn)
            self.chunk(event.encode())
        self.chunk(b"")
        return None

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True  # the client has gone


def command(asked):
    with LOCK:
        if "turns" in asked:
            TURNS[:] = asked["turns"]
            STATE["only_with_tools"] = asked.get("only_with_tools", False)
        elif "left" in asked:
            return len(TURNS)
        elif "release" in asked:
            STATE["releases"] += 1
            RELEASED.notify_all()
        else:
            return SEEN
        return True


def main():
    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    for line in sys.stdin:
        print(json.dumps(command(json.loads(line))), flush=True)


main()
