// Runs a JavaScript function: is given its source, then calls it, over HTTP/1.1, as images/python/minik8s_runtime.py does.
"use strict";
const { AsyncLocalStorage } = require("async_hooks");
const crypto = require("crypto");
const fs = require("fs");
const http = require("http");
const net = require("net");
const path = require("path");

const folder = process.env.FUNCTION_FOLDER || "/tmp/function";
const tokenHash = process.env.FUNCTION_TOKEN_SHA256 || "";
const sha256 = (text) => crypto.createHash("sha256").update(text).digest("hex");

// What came of calls that have a name, as long as there is room.
const MOST_HELD = 256;
const held = new Map();
const requests = new AsyncLocalStorage();

let revision;
let handler;
let loadFailure;

function failure(kind, error) {
  const message = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  return { error: kind, message, traceback: (error && error.stack) || "" };
}

function answer(response, status, content) {
  response.writeHead(status, { "content-type": "application/json", "content-length": Buffer.byteLength(content) });
  response.end(content);
}

// What a call prints begins with its request's id.
for (const stream of [process.stdout, process.stderr]) {
  const write = stream.write.bind(stream);
  stream.write = (chunk, ...rest) => {
    const request = requests.getStore();
    const text = request ? String(chunk).replace(/^(?!$)/gm, `[${request}] `) : chunk;
    return write(text, ...rest);
  };
}

function load(wanted) {
  if (revision === wanted.revision) return loadFailure;
  if (revision !== undefined) return { error: "WrongRevision", message: `this pod runs ${revision}` };
  revision = wanted.revision;
  try {
    for (const [name, text] of Object.entries(wanted.files)) {
      const file = path.join(folder, name);
      fs.mkdirSync(path.dirname(file), { recursive: true });
      fs.writeFileSync(file, text);
    }
    process.chdir(folder);
    const found = require(path.join(folder, wanted.module.replaceAll(".", "/")));
    handler = typeof found === "function" ? found : found[wanted.function];
    if (typeof handler !== "function") {
      handler = undefined;
      loadFailure = { error: "NoHandler", message: `module ${wanted.module} exports no function ${wanted.function}` };
    }
  } catch (error) {
    loadFailure = failure("ImportFailed", error);
  }
  return loadFailure;
}

// The status and the body of the answer.
async function call(headers, body) {
  if (!handler) return [500, JSON.stringify(loadFailure || { error: "NotLoaded", message: "nothing was loaded yet" })];
  let params;
  try {
    params = body.length ? JSON.parse(body) : {};
  } catch (error) {
    return [400, JSON.stringify({ error: "NotJSON", message: `the parameters are not JSON: ${error.message}` })];
  }
  const text = (name) => headers[name] || "";
  const event = Object.fromEntries(Object.entries(headers).filter(([name]) => name.startsWith("ce-")).map(([name, value]) => [name.slice(3), value]));
  const context = {
    requestId: text("x-request-id"), traceparent: text("traceparent"), callId: text("x-function-call"),
    attempt: Number(headers["x-function-attempt"] || 1), revision, event,
  };
  try {
    const result = await requests.run(context.requestId, () => handler(params, context));
    const made = JSON.stringify(result === undefined ? null : result);
    if (made === undefined) throw new TypeError("what the function returned is not JSON");
    return [200, made];
  } catch (error) {
    return [500, JSON.stringify(failure("Raised", error))];
  }
}

// A call with a name: made if it is the first of this name.
function callOnce(name, headers, body) {
  if (!held.has(name)) {
    const made = call(headers, body);
    held.set(name, made);
    // A call that failed may be made again.
    made.then(([status]) => status === 200 || held.delete(name));
    if (held.size > MOST_HELD) held.delete(held.keys().next().value);
  }
  return held.get(name);
}

const server = http.createServer((request, response) => {
  const pieces = [];
  request.on("data", (piece) => pieces.push(piece));
  request.on("end", () => {
    if (sha256(request.headers["x-function-token"] || "") !== tokenHash) {
      return answer(response, 401, JSON.stringify({ error: "Unauthorized", message: "only the activator is answered" }));
    }
    const body = Buffer.concat(pieces).toString();
    if (request.url === "/load") {
      const failed = load(JSON.parse(body));
      return answer(response, failed ? 500 : 200, JSON.stringify(failed || {}));
    }
    const name = request.headers["x-function-call"];
    const made = (promise) => promise.then(([status, text]) => answer(response, status, text));
    if (request.url === "/call") return made(name ? callOnce(name, request.headers, body) : call(request.headers, body));
    if (request.url === "/knows") return answer(response, held.has(name) ? 200 : 404, "{}");
    if (request.url === "/held") return made(held.get(name) || Promise.resolve([404, "{}"]));
    answer(response, 404, JSON.stringify({ error: "NotFound", message: "there are /load, /call, /knows and /held" }));
  });
});
server.keepAliveTimeout = 0;
server.requestTimeout = 0;

process.on("SIGTERM", () => server.close(() => process.exit(0)) && server.closeIdleConnections());
server.listen({ port: Number(process.env.FUNCTION_PORT || 8080), host: process.env.FUNCTION_ADDRESS || undefined }, () => {
  const ready = process.env.FUNCTION_READY;
  if (!ready) return;
  const at = ready.lastIndexOf(":");
  const told = net.connect({ host: ready.slice(0, at).replace(/[\[\]]/g, ""), port: Number(ready.slice(at + 1)) }, () => told.end(`${tokenHash}\n`));
  told.on("error", () => {});
});
