
"use strict";

const base = new URL(".", location.href).href.replace(/\/$/, "");
const secrets = { key: "" };
let spec;

function h(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.flat(9).filter((child) => child != null && child !== ""));
  return node;
}

// The little of Markdown that descriptions use: paragraphs, lists, `code` and **weight**.
function inline(text) {
  return text.split(/(`[^`]+`|\*\*[^*]+\*\*)/).map((part) =>
    part.startsWith("`") ? h("code", {}, part.slice(1, -1))
      : part.startsWith("**") ? h("strong", {}, inline(part.slice(2, -2)))
        : part);
}

function prose(text) {
  return (text || "").split(/\n{2,}/).filter(Boolean).map((block) => {
    const lines = block.split("\n");
    return lines.every((line) => line.startsWith("- "))
      ? h("ul", {}, lines.map((line) => h("li", {}, inline(line.slice(2)))))
      : h("p", {}, inline(lines.join(" ")));
  });
}

function resolve(schema) {
  let found = schema || {};
  while (found.$ref) {
    found = found.$ref.slice(2).split("/").reduce((place, step) => place[step], spec);
  }
  return found;
}

function nameOf(schema) {
  return schema.$ref ? schema.$ref.split("/").pop() : schema.title || "";
}

function typeOf(schema) {
  const found = resolve(schema);
  if ("const" in found) return JSON.stringify(found.const);
  if (found.enum) return found.enum.map((value) => JSON.stringify(value)).join(" | ");
  const options = found.anyOf || found.oneOf;
  if (found.type === "array") return `array of ${typeOf(found.items || {})}`;
  const own = [].concat(found.type || []).filter((type) => type !== "null");
  if (!own.length && options) {
    const kinds = options.filter((option) => option.type !== "null").map(typeOf);
    return [...new Set(kinds)].join(" or ");
  }
  const type = own.join(" or ") || "any";
  const notes = [];
  if (found.format) notes.push(found.format);
  if (found.maxLength) notes.push(`${found.minLength || 0}–${found.maxLength} characters`);
  if (found.minimum != null && found.maximum != null) notes.push(`${found.minimum} to ${found.maximum}`);
  if (found.default != null) notes.push(`default ${found.default}`);
  return notes.length ? `${type}, ${notes.join(", ")}` : type;
}

function nestedOf(schema) {
  const found = resolve(schema);
  if (found.type === "array") return nestedOf(found.items);
  const options = (found.oneOf || found.anyOf || []).filter((option) => option.$ref);
  if (options.length) return alternatives(options);
  return found.properties ? tree(found) : null;
}

function tree(schema) {
  const found = resolve(schema);
  const required = new Set(found.required || []);
  return h("ul", { class: "tree" }, Object.entries(found.properties || {}).map(([name, property]) =>
    h("li", {},
      h("span", { class: "name" }, name),
      h("span", { class: "type" }, nestedOf(property) ? shortType(property) : typeOf(property)),
      required.has(name) ? h("span", { class: "must" }, "required") : null,
      prose(resolve(property).description),
      nestedOf(property))));
}

function shortType(schema) {
  const found = resolve(schema);
  if (found.type === "array") return `array of ${nameOf(found.items) || "objects"}`;
  return nameOf(schema) || "object";
}

function alternatives(options) {
  return options.map((option) => {
    const found = resolve(option);
    const text = (found.description || "").split(". ")[0].replace(/\.$/, "");
    return h("details", { class: "more" },
      h("summary", {}, found.title || nameOf(option), " ", h("span", {}, inline(text))),
      prose(found.description),
      found.oneOf || found.anyOf && !found.properties ? nestedOf(found) : tree(found));
  });
}

function schemaView(schema) {
  const found = resolve(schema);
  return [prose(found.description), nestedOf(found) || h("p", { class: "lead" }, typeOf(found))];
}

function codebox(text) {
  const pre = h("pre", {}, text);
  const button = h("button", { type: "button", onclick: () => copy(pre.textContent, button) }, "Copy");
  return {
    node: h("div", { class: "codebox" }, pre, button),
    set: (value) => { pre.textContent = value; },
    text: () => pre.textContent,
  };
}

async function copy(text, button) {
  const label = button.textContent;
  let done = true;
  button.disabled = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h("textarea", {}, text);
    document.body.append(area);
    area.select();
    done = document.execCommand("copy");
    area.remove();
  }
  button.textContent = done ? "Copied" : "Select and copy";
  setTimeout(() => { button.textContent = label; button.disabled = false; }, 1500);
}

const pretty = (value) => JSON.stringify(value, null, 2);
const quoted = (text) => `'${text.replace(/'/g, "'\\''")}'`;

function parameterTable(parameters) {
  if (!parameters?.length) return null;
  return [h("h4", {}, "Parameters"), h("div", { class: "scroll" }, h("table", {},
    h("thead", {}, h("tr", {}, ["Name", "In", "Type", "Meaning"].map((name) => h("th", {}, name)))),
    h("tbody", {}, parameters.map((parameter) => h("tr", {},
      h("td", {}, h("code", {}, parameter.name), parameter.required ? h("span", { class: "must" }, " required") : null),
      h("td", { class: "lead" }, parameter.in),
      h("td", { class: "lead" }, hintOf(parameter)),
      h("td", {}, inline(parameter.description || "")))))))];
}

function hintOf(parameter) {
  if (/From$|To$/.test(parameter.name) && !parameter.name.startsWith("sequence")) return "time, RFC 3339";
  if (/^sequence|^after$/.test(parameter.name)) return "sequence";
  return typeOf(parameter.schema).replace(/ or null/, "");
}

function secured(operation) {
  return (operation.security || []).length > 0;
}

// The form: whatever stands in it is what curl shows and what is sent.
function consoleFor(method, path, operation) {
  const inputs = (operation.parameters || []).map((parameter) => ({
    parameter,
    input: h("input", { placeholder: parameter.example || "", autocomplete: "off", spellcheck: "false",
      value: parameter.in === "path" ? parameter.example || "" : "", oninput: () => refresh() }),
  }));
  const contents = operation.requestBody?.content;
  const types = Object.keys(contents || {});
  const mediaType = types.length && h("select", { onchange: () => fillExamples() }, types.map((type) => h("option", {}, type)));
  const example = types.length && h("select", { onchange: () => fillBody() });
  const body = types.length && h("textarea", { "aria-label": "Body", spellcheck: "false", oninput: () => refresh() });
  const curl = codebox("");
  const answer = h("div", {});
  const send = h("button", { class: "go", type: "submit" }, "Send");
  const take = h("button", { type: "button", onclick: () => copy(curl.text(), take) }, "Copy as curl");

  function address() {
    let filled = path;
    const query = new URLSearchParams();
    for (const { parameter, input } of inputs) {
      if (parameter.in === "path") filled = filled.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
      else if (input.value) query.append(parameter.name, input.value);
    }
    const asked = query.toString();
    return base + filled + (asked ? `?${asked}` : "");
  }

  function refresh() {
    const lines = [`curl ${method === "GET" ? "" : `-X ${method} `}${quoted(address())}`];
    if (secured(operation)) lines.push(`-H "Authorization: Bearer $TIDEMARK_API_KEY"`);
    if (body) {
      lines.push(`-H 'Content-Type: ${mediaType.value}'`);
      lines.push(`-d ${quoted(body.value)}`);
    }
    curl.set(lines.join(" \\\n  "));
  }

  function fillExamples() {
    const examples = contents[mediaType.value].examples || {};
    example.replaceChildren(...Object.entries(examples).map(([name, one]) => h("option", { value: name }, one.summary || name)));
    fillBody();
  }

  function fillBody() {
    const one = (contents[mediaType.value].examples || {})[example.value];
    body.value = one ? pretty(one.value) : "";
    body.rows = Math.min(22, body.value.split("\n").length + 1);
    refresh();
  }

  async function submit(event) {
    event.preventDefault();
    send.disabled = true;
    const started = performance.now();
    try {
      const headers = {};
      if (secured(operation) && secrets.key) headers.Authorization = `Bearer ${secrets.key}`;
      if (body) headers["Content-Type"] = mediaType.value;
      const response = await fetch(address(), { method, headers, body: body ? body.value : undefined });
      const text = await response.text();
      let shown = text;
      try { shown = pretty(JSON.parse(text)); } catch { /* not JSON: as it came */ }
      show(response.ok, `${response.status} ${response.statusText}`, performance.now() - started, shown);
    } catch (error) {
      show(false, "No answer", performance.now() - started, String(error));
    }
    send.disabled = false;
    showStatus();
  }

  function show(good, verdict, elapsed, text) {
    const box = codebox(text || "(empty)");
    answer.className = "answer";
    answer.setAttribute("aria-live", "polite");
    answer.replaceChildren(
      h("div", { class: `verdict ${good ? "good" : "bad"}` }, verdict.trim(), h("small", {}, `  ${Math.round(elapsed)} ms`)), box.node);
  }

  const form = h("form", { class: "console", onsubmit: submit },
    body ? h("div", { class: "row" }, h("label", {}, "Content type", mediaType), h("label", {}, "Example", example)) : null,
    inputs.length ? h("div", { class: "row" }, inputs.map(({ parameter, input }) => h("label", {}, parameter.name, input))) : null,
    body || null,
    h("div", { class: "row" }, send, take),
    h("details", { class: "curl", open: !body }, h("summary", {}, "The same with curl"), curl.node), answer);
  if (body) fillExamples();
  refresh();
  return form;
}

function responses(operation) {
  return [h("h4", {}, "Answers"), Object.entries(operation.responses).map(([status, response]) => {
    const [type, content] = Object.entries(response.content || {})[0] || [];
    const shows = content && type === "application/json" && Number(status) < 400;
    return h("div", { class: `response s${status[0]}` }, h("b", {}, status), h("div", {},
      prose(response.description),
      Object.entries(response.headers || {}).map(([name, header]) => h("p", { class: "lead" }, h("code", {}, name), " ", header.description || "")),
      content && type !== "application/json" ? h("p", { class: "lead" }, type) : null,
      shows ? h("details", { class: "more" }, h("summary", {}, "Schema ", h("span", {}, nameOf(content.schema))), schemaView(content.schema)) : null,
      shows && content.example ? h("details", { class: "more" }, h("summary", {}, "Example"), codebox(pretty(content.example)).node) : null));
  })];
}

function pathView(path) {
  return h("span", { class: "path" }, path.split(/(\{\w+\})/).map((part) => part.startsWith("{") ? h("em", {}, part) : part));
}

function operationCard(method, path, operation) {
  const contents = operation.requestBody?.content;
  return h("article", { class: "card", id: operation.operationId },
    h("header", {}, h("span", { class: `verb ${method.toLowerCase()}` }, method), pathView(path), h("h3", { class: "summary" }, operation.summary)),
    prose(operation.description),
    parameterTable(operation.parameters),
    contents ? [h("h4", {}, "Body"), Object.entries(contents).map(([type, content]) =>
      h("details", { class: "more" }, h("summary", {}, type), schemaView(content.schema)))] : null,
    h("h4", {}, "Try it"), consoleFor(method, path, operation),
    responses(operation));
}

function tailCard(path, socket) {
  const inputs = socket.parameters.map((parameter) => [parameter, h("input", { placeholder: parameter.example || "", autocomplete: "off" })]);
  const log = h("pre", {});
  const verdict = h("div", { class: "verdict" });
  const button = h("button", { class: "go", type: "submit" }, "Connect");
  let open = null;
  const form = h("form", { class: "console", onsubmit: toggle },
    h("div", { class: "row" }, inputs.map(([parameter, input]) => h("label", {}, parameter.name, input))),
    h("div", { class: "row" }, button),
    h("div", { class: "answer", "aria-live": "polite" }, verdict, log));
  form.lastChild.hidden = true;

  function toggle(event) {
    event.preventDefault();
    form.lastChild.hidden = false;
    if (open) { open.close(); return; }
    const query = new URLSearchParams(inputs.map(([parameter, input]) => [parameter.name, input.value]).filter(([, value]) => value));
    log.textContent = "";
    open = new WebSocket(`${base.replace(/^http/, "ws")}${path}?${query}`);
    open.onopen = () => { verdict.textContent = "Connected; waiting for events"; verdict.className = "verdict good"; button.textContent = "Disconnect"; };
    open.onmessage = (message) => { log.textContent = `${message.data}\n${log.textContent}`.slice(0, 50000); };
    open.onclose = (closed) => { verdict.textContent = `Closed (${closed.code}) ${closed.reason}`; verdict.className = "verdict"; button.textContent = "Connect"; open = null; };
  }

  const keys = spec.components.securitySchemes;
  return h("article", { class: "card", id: "tail" },
    h("header", {}, h("span", { class: "verb ws" }, "WS"), pathView(path), h("h3", { class: "summary" }, socket.summary)),
    prose(socket.description), parameterTable(socket.parameters),
    h("h4", {}, "Try it"),
    keys ? h("p", { class: "lead" }, "A browser cannot send a key with a websocket. ", h("code", {}, "tidemark tail"), " can.") : form);
}

function streamCard(name, stream) {
  const schema = resolve({ $ref: stream.schema });
  const identity = stream.kind === "usage" ? ["tenantId", "metric", "customerRef", "resourceId", "ts"] : stream.identity;
  return h("article", { class: "card", id: `stream-${name}` },
    h("header", {}, h("span", { class: "path" }, name), h("span", { class: "lead" }, stream.kind === "usage" ? "usage events" : "events")),
    prose(stream.description),
    h("p", {}, "One event is known by: ", identity.length ? identity.map((field) => [h("code", {}, field), " "]) : "its idempotencyKey, or as a CloudEvent by source and id"),
    tree(schema));
}

function codesCard() {
  return h("article", { class: "card", id: "codes" },
    h("p", {}, "A request that is refused as a whole has one of these codes. Codes of single events are in their results."),
    h("div", { class: "scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, ["Code", "Status", "Meaning"].map((name) => h("th", {}, name)))),
      h("tbody", {}, Object.entries(spec["x-request-codes"]).map(([code, { status, meaning }]) => h("tr", {},
        h("td", {}, h("code", {}, code)), h("td", { class: "lead" }, status), h("td", {}, inline(meaning))))))));
}

function keyBox() {
  const input = h("input", { type: "password", autocomplete: "off", placeholder: "for Try it; it stays in this page", oninput: () => { secrets.key = input.value; } });
  return h("div", { class: "keybox" }, h("label", {}, "API key", input));
}

async function showStatus() {
  const place = document.getElementById("status");
  try {
    const answer = await (await fetch(`${base}/readyz`)).json();
    const sequence = answer.parts?.ledger?.lastSequence;
    place.className = `status ${answer.status}`;
    place.textContent = answer.status + (sequence ? ` · sequence ${sequence}` : "");
  } catch {
    place.className = "status unavailable";
    place.textContent = "no answer";
  }
}

function draw() {
  const main = document.getElementById("content");
  const nav = document.getElementById("nav");
  document.getElementById("version").textContent = spec.info.version;
  main.replaceChildren(h("section", { id: "top" }, h("h1", {}, "Tidemark API"), prose(spec.info.description),
    spec.components.securitySchemes ? keyBox() : h("p", { class: "lead" }, "No API keys are configured: everyone on this machine may call, and pages of other origins may not.")));
  const link = (target, ...content) => h("a", { href: `#${target}` }, content);
  for (const tag of spec.tags) {
    const operations = Object.entries(spec.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, operation]) => [method.toUpperCase(), path, operation])).filter(([, , operation]) => operation.tags.includes(tag.name));
    const sockets = tag.name === "Admin" ? Object.entries(spec["x-websockets"]) : [];
    nav.append(h("h2", {}, tag.name), ...operations.map(([method, , operation]) =>
      link(operation.operationId, h("span", { class: `verb ${method.toLowerCase()}` }, method), operation.summary)),
    ...sockets.map(([, socket]) => link("tail", h("span", { class: "verb ws" }, "WS"), socket.summary)));
    main.append(h("section", {}, h("h2", {}, tag.name), h("p", { class: "lead" }, tag.description),
      operations.map((one) => operationCard(...one)), sockets.map((one) => tailCard(...one))));
  }
  const streams = Object.entries(spec["x-streams"]);
  nav.append(h("h2", {}, "Reference"), ...streams.map(([name]) => link(`stream-${name}`, `Stream ${name}`)), link("codes", "Error codes"));
  main.append(h("section", {}, h("h2", {}, "Streams"), h("p", { class: "lead" }, "What the running configuration declares."),
    streams.length ? streams.map((one) => streamCard(...one)) : h("p", { class: "notice" }, "No stream is declared, so every event is rejected.")));
  main.append(h("section", {}, h("h2", {}, "Error codes"), codesCard()));
  nav.addEventListener("click", () => { if (narrow.matches) document.getElementById("menu").open = false; });
  follow(nav);
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

function follow(nav) {
  const links = new Map([...nav.querySelectorAll("a")].map((one) => [one.hash.slice(1), one]));
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) {
        for (const one of links.values()) one.classList.remove("here");
        links.get(entry.target.id)?.classList.add("here");
      }
    }
  }, { rootMargin: "-15% 0px -75% 0px" });
  document.querySelectorAll("article[id]").forEach((article) => watch.observe(article));
}

const narrow = matchMedia("(max-width: 56rem)");
document.getElementById("menu").open = !narrow.matches;
narrow.addEventListener("change", () => { document.getElementById("menu").open = !narrow.matches; });
fetch(`${base}/openapi.json`).then((answer) => answer.json()).then((document_) => { spec = document_; draw(); showStatus(); })
  .catch((error) => document.getElementById("content").replaceChildren(h("p", { class: "notice" }, `The description cannot be read: ${error}`)));
