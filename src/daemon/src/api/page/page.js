"use strict";
const $ = (id) => document.getElementById(id);
const EXAMPLES = {
  python: 'import matplotlib.pyplot as plt\n\nplt.plot([1, 4, 9, 16])\nplt.savefig("/data/plot.png")\nprint("hello from python")\n',
  typescript: 'enum Greeting { Hello = "hello" }\nconsole.log(`${Greeting.Hello} from typescript`);\n',
};

async function call(name, args) {
  const headers = { "Content-Type": "application/json" };
  if ($("token").value) headers.Authorization = `Bearer ${$("token").value}`;
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params: { name, arguments: args } });
  const response = await fetch("mcp", { method: "POST", headers, body });
  const answer = await response.json();
  if (answer.error) throw new Error(answer.message || answer.error.message);
  return answer.result.structuredContent;
}

async function base64(file) {
  const url = await new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.onerror = () => failed(reader.error);
    reader.readAsDataURL(file);
  });
  return url.slice(url.indexOf(",") + 1);
}

async function languages() {
  const { languages } = await call("list_runners", {});
  $("language").replaceChildren(...languages.map(({ language }) => new Option(language)));
  example();
}

function example() {
  const known = Object.values(EXAMPLES);
  if (!$("code").value || known.includes($("code").value)) $("code").value = EXAMPLES[$("language").value] || "";
}

function show(result) {
  $("conversation").value = result.session_id || $("conversation").value;
  $("stdout").textContent = result.stdout ?? "";
  $("stderr").textContent = result.stderr ?? result.message ?? "";
  $("list").replaceChildren(...(result.artifacts || []).map((file) => {
    const row = document.createElement("li");
    const link = document.createElement("a");
    link.href = file.download_url;
    link.textContent = `${file.path} (${file.size_bytes} bytes)`;
    row.append(link);
    if (file.mime_type.startsWith("image/")) {
      const image = document.createElement("img");
      image.src = file.download_url;
      image.alt = file.filename;
      row.append(image);
    }
    return row;
  }));
  $("result").hidden = false;
}

$("run").addEventListener("submit", async (event) => {
  event.preventDefault();
  $("go").disabled = true;
  $("status").textContent = "running…";
  try {
    const args = { language: $("language").value, code: $("code").value };
    if ($("conversation").value) args.conversationId = $("conversation").value;
    args.files = await Promise.all([...$("files").files].map(async (f) => ({ path: f.name, content: await base64(f) })));
    const begun = performance.now();
    const result = await call("run_code", args);
    const ms = (performance.now() - begun).toFixed(1);
    $("status").textContent = result.run_id ? `exit code ${result.exit_code}, ${ms} ms` : result.error;
    show(result);
  } catch (error) {
    $("status").textContent = error.message;
  } finally {
    $("go").disabled = false;
  }
});
$("language").addEventListener("change", example);
$("token").addEventListener("change", () => languages().catch((error) => ($("status").textContent = error.message)));
$("code").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("run").requestSubmit();
});
languages().catch((error) => ($("status").textContent = error.message));
