#!/usr/bin/env python3
"""A coding agent in one file: it gives a model two tools, and reports what it does in paddock's own form.

../README.md has the contract. What this file must have of it: read the task from standard input, keep its state
in the state directory, respect the level in its own settings, and write one JSON object a line.
"""
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request

TASK = json.load(sys.stdin)
LEVEL = TASK["level"]
STATE = os.path.join(TASK["state_directory"], "conversation.json")
TOOLS = [
    {"name": "write_file", "description": "Writes a text file of the workspace.",
     "input_schema": {"type": "object", "required": ["path", "content"],
                      "properties": {"path": {"type": "string"}, "content": {"type": "string"}}}},
    {"name": "run_command", "description": "Runs a command with sh.",
     "input_schema": {"type": "object", "required": ["command"],
                      "properties": {"command": {"type": "string"}}}},
]
USED = {"input": 0, "output": 0, "cache_read": 0, "cache_write": 0}


def tell(kind, **more):
    print(json.dumps({"type": kind} | more), flush=True)


def ask(model, messages):
    """One turn of the model. The daemon adds the key and counts what it costs."""
    body = {"model": TASK["model"] or "claude-sonnet-5", "max_tokens": 4096, "messages": messages,
            "tools": TOOLS if LEVEL >= 3 else TOOLS[:1]}
    request = urllib.request.Request(
        model["url"] + "/v1/messages", json.dumps(body).encode(),
        {"content-type": "application/json", "anthropic-version": "2023-06-01"})
    try:
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise SystemExit(failed(json.load(error)["error"]["message"]))


def failed(why, turns=0):
    tell("result", success=False, text=why, turns=turns, tokens=USED)
    return 1


def use(tool, given):
    """Does what the model asks for, within the level, and returns what the model reads."""
    if tool == "write_file":
        path = os.path.join(TASK["directory"], given["path"])
        tell("tool", tool=tool, what=f"writes {given['path']}")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(given["content"])
        return "written"
    what = f"runs {given['command']}" if tool == "run_command" else f"uses {tool}"
    tell("tool", tool=tool, what=what)
    if tool != "run_command" or LEVEL < 3:
        tell("denied", tool=tool, what=what)
        return "This level does not have this tool."
    done = subprocess.run(["/bin/sh", "-c", given["command"]], capture_output=True, text=True, check=False)
    return f"exit code {done.returncode}\n{done.stdout}{done.stderr}"


def main():
    models = [model for model in TASK["models"] if model["format"] == "anthropic"]
    if not models:
        return failed("this agent speaks to models with Anthropic's Messages API only, and there is none")
    messages = []
    if TASK["resume"] and os.path.exists(STATE):
        with open(STATE, encoding="utf-8") as file:
            messages = json.load(file)
    messages.append({"role": "user", "content": TASK["task"]})
    turns = 0
    while True:
        answer = ask(models[0], messages)
        turns += 1
        USED["input"] += answer["usage"]["input_tokens"]
        USED["output"] += answer["usage"]["output_tokens"]
        messages.append({"role": "assistant", "content": answer["content"]})
        results, said = [], ""
        for part in answer["content"]:
            if part["type"] == "text":
                said = part["text"]
                tell("message", text=said)
            elif part["type"] == "tool_use":
                result = use(part["name"], part["input"])
                results.append({"type": "tool_result", "tool_use_id": part["id"], "content": result})
        os.makedirs(TASK["state_directory"], exist_ok=True)
        with open(STATE, "w", encoding="utf-8") as file:
            json.dump(messages + ([{"role": "user", "content": results}] if results else []), file)
        if not results:
            tell("result", success=True, text=said, turns=turns, tokens=USED)
            return 0
        messages.append({"role": "user", "content": results})


sys.exit(main())
