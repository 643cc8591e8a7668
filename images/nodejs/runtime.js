// Runs a JavaScript function: is given its source, then calls it, over HTTP/1.1, as images/python/minik8s_runtime.py does.
"use strict";
const crypto = require("crypto");
const fs = require("fs");
const http = require("http");
const net = require("net");
const path = require("path");

const folder = process.env.FUNCTION_FOLDER || "/tmp/function";
const tokenHash = process.env.FUNCTION_TOKEN_SHA256 || "";
const sha256 = (text) => crypto.createHash("sha256").update(text).digest("hex");

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

async function call(response, body) {
  if (!handler) return answer(response, 500, JSON.stringify(loadFailure || { error: "NotLoaded", message: "nothing was loaded yet" }));
  let params;
  try {
    params = body.length ? JSON.parse(body) : {};
  } catch (error) {
    return answer(response, 400, JSON.stringify({ error: "NotJSON", message: `the parameters are not JSON: ${error.message}` }));
  }
  try {
    const result = await handler(params);
    const text = JSON.stringify(result === undefined ? null : result);
    if (text === undefined) throw new TypeError("what the function returned is not JSON");
    answer(response, 200, text);
  } catch (error) {
    answer(response, 500, JSON.stringify(failure("Raised", error)));
  }
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
    if (request.url === "/call") return call(response, body);
    answer(response, 404, JSON.stringify({ error: "NotFound", message: "there are /load and /call" }));
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
