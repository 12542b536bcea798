// `cove serve` as a platform for E2B's unmodified JavaScript SDK: the life of sandboxes, lists, hosts,
// tokens, ownership. COVE_OTHER_KEY is another user's key.
"use strict";

const assert = require("node:assert/strict");
const http = require("node:http");
const { test } = require("node:test");
const { AuthenticationError, NotFoundError, Sandbox, SandboxError, TimeoutError } = require("e2b");
const { failure, sleep, until } = require("../helper.js");

const core = test;
const gone = "i00000000000000000000";
const other = { apiKey: process.env.COVE_OTHER_KEY };
const made = [];

async function create(...words) {
  const box = await Sandbox.create(...words);
  made.push(box);
  return box;
}

test.after(() => Promise.all(made.map((box) => box.kill())));

// One request to a port of a sandbox, by the host that the SDK gives it.
function ask(box, port, path = "/", headers = {}) {
  const url = new URL(process.env.E2B_API_URL);
  return new Promise((resolve, reject) => {
    const options = { host: url.hostname, port: url.port, path, agent: false };
    const request = http.get({ ...options, headers: { Host: box.getHost(port), ...headers } }, (answer) => {
      let text = "";
      answer.on("data", (data) => (text += data));
      answer.on("end", () => resolve({ status: answer.statusCode, text }));
    });
    request.on("error", reject);
  });
}

const left = (info) => (info.endAt.getTime() - Date.now()) / 1000;

async function pages(paginator) {
  const found = [];
  while (paginator.hasNext) found.push(await paginator.nextItems());
  return found;
}

core("a sandbox is created, used and ended", async () => {
  const box = await create({ timeoutMs: 60000, envs: { A: "1" }, metadata: { who: "js" } });
  assert.equal(await box.isRunning(), true);
  assert.equal((await box.commands.run("echo $A")).stdout, "1\n");
  await box.files.write("/home/user/f", "text");
  assert.equal(await box.files.read("/home/user/f"), "text");
  assert.equal(await box.kill(), true);
});

core("a sandbox that was ended is gone for every call", async () => {
  const box = await create();
  assert.equal(await box.kill(), true);
  assert.equal(await Sandbox.kill(box.sandboxId), false);
  assert.equal(await box.isRunning(), false);
  for (const call of [() => box.files.read("/etc/hostname"), () => box.files.list("/")])
    assert.ok((await failure(call())) instanceof TimeoutError, String(call));
  for (const call of [
    () => box.commands.run("true"),
    () => Sandbox.connect(box.sandboxId),
    () => box.setTimeout(60000),
    () => box.getInfo(),
  ])
    assert.ok((await failure(call())) instanceof NotFoundError, String(call));
});

core("a sandbox that never was is not found", async () => {
  assert.equal(await Sandbox.kill(gone), false);
  assert.ok((await failure(Sandbox.connect(gone))) instanceof NotFoundError);
  assert.ok((await failure(Sandbox.getInfo(gone))) instanceof NotFoundError);
});

core("who connects finds what is there, and extends its time", async () => {
  const box = await create({ timeoutMs: 100000 });
  await box.files.write("/tmp/f", "x");
  const again = await Sandbox.connect(box.sandboxId, { timeoutMs: 10000 });
  assert.equal(await again.files.read("/tmp/f"), "x");
  assert.ok(left(await box.getInfo()) > 90);
  await Sandbox.connect(box.sandboxId, { timeoutMs: 500000 });
  assert.ok(left(await box.getInfo()) > 490);
});

core("a new time-out counts from now both ways", async () => {
  const box = await create({ timeoutMs: 300000 });
  await box.setTimeout(50000);
  assert.ok(left(await box.getInfo()) <= 50);
  await Sandbox.setTimeout(box.sandboxId, 900000);
  assert.ok(left(await box.getInfo()) > 890);
});

core("a sandbox ends when its time is over", async () => {
  const began = Date.now();
  const box = await create({ timeoutMs: 2000 });
  const handle = await box.commands.run("sleep 100", { background: true });
  const waited = failure(handle.wait());
  await until(async () => !(await box.isRunning()), 10000);
  const took = Date.now() - began;
  assert.ok(took > 1900 && took < 8000, `${took} ms`);
  assert.ok((await waited) instanceof Error);
});

core("info tells all about a sandbox", async () => {
  const metadata = { "a&b=c%d": "&=%+ #", "žluť 🐎": "日本語" };
  const box = await create({ timeoutMs: 200000, metadata });
  const info = await box.getInfo();
  assert.equal(info.sandboxId, box.sandboxId);
  assert.equal(info.templateId, "base");
  assert.equal(info.state, "running");
  assert.deepEqual(info.metadata, metadata);
  assert.ok(Math.abs(info.endAt - info.startedAt - 200000) < 5000);
  assert.ok(info.cpuCount >= 1 && info.memoryMB >= 16);
});

core("a list comes in pages and can be of some metadata only", async () => {
  const run = `run-${process.pid}-${Date.now()}`;
  const ids = [];
  for (let i = 0; i < 5; i++)
    ids.unshift((await create({ metadata: { run, odd: String(i % 2), "k&=%": "ž=&%" } })).sandboxId);
  const all = await pages(Sandbox.list({ limit: 2, query: { metadata: { run } } }));
  assert.deepEqual(all.map((page) => page.length), [2, 2, 1]);
  assert.deepEqual(all.flat().map((info) => info.sandboxId), ids);
  const odd = await pages(Sandbox.list({ query: { metadata: { run, odd: "1", "k&=%": "ž=&%" }, state: ["running"] } }));
  assert.deepEqual(odd.flat().map((info) => info.sandboxId), [ids[1], ids[3]]);
  assert.deepEqual((await pages(Sandbox.list({ query: { metadata: { run }, state: ["paused"] } }))).flat(), []);
});

core("metrics are told", async () => {
  const box = await create();
  const all = await box.getMetrics();
  const last = all[all.length - 1];
  assert.ok(last.memUsed > 0 && last.memUsed < last.memTotal);
  assert.ok(last.cpuCount >= 1 && last.cpuUsedPct >= 0 && last.cpuUsedPct <= 100);
  assert.ok(last.diskTotal > last.diskUsed);
});

core("what is another's does not exist", async () => {
  const box = await create({ metadata: { secret: "yes" } });
  assert.equal(await Sandbox.kill(box.sandboxId, other), false);
  assert.ok((await failure(Sandbox.connect(box.sandboxId, other))) instanceof NotFoundError);
  assert.ok((await failure(Sandbox.getInfo(box.sandboxId, other))) instanceof NotFoundError);
  assert.deepEqual((await pages(Sandbox.list({ ...other, query: { metadata: { secret: "yes" } } }))).flat(), []);
  assert.equal(await box.isRunning(), true);
});

core("a key that is not known is an authentication error", async () => {
  const error = await failure(Sandbox.create({ apiKey: `e2b_${"0".repeat(40)}` }));
  assert.ok(error instanceof AuthenticationError, String(error));
});

core("a template that does not exist is named", async () => {
  const error = await failure(Sandbox.create("no-such-template"));
  assert.ok(error instanceof SandboxError, String(error));
  assert.match(error.message, /404.*no-such-template/);
});

core("without the internet there is no way out", async () => {
  const box = await create({ allowInternetAccess: false });
  const links = await box.commands.run("tail -n +3 /proc/net/dev | cut -d: -f1");
  assert.equal(links.stdout.trim(), "lo");
  assert.equal((await box.getInfo()).allowInternetAccess, false);
});

core("a port is reached by its host", async () => {
  const box = await create();
  assert.equal(box.getHost(8000), `8000-${box.sandboxId}.${box.sandboxDomain}`);
  const closed = await ask(box, 8000);
  assert.equal(closed.status, 502);
  assert.match(JSON.parse(closed.text).message, /port is not open/);
  await box.files.write("/home/user/www/index.html", "<p>hello");
  await box.commands.run("exec python3 -m http.server -d www 8000", { background: true, timeoutMs: 0 });
  const open = await until(async () => {
    const answer = await ask(box, 8000);
    return answer.status === 200 && answer;
  });
  assert.equal(open.text, "<p>hello");
  await box.kill();
  const after = await ask(box, 8000);
  assert.equal(after.status, 502);
  assert.match(JSON.parse(after.text).message, /was not found/);
});

core("a signed URL works at the sandbox's host", async () => {
  const box = await create();
  await box.files.write("a b.txt", "signed");
  const url = new URL(await box.downloadUrl("a b.txt", { useSignatureExpiration: 60 }));
  const answer = await ask(box, 49983, url.pathname + url.search);
  assert.deepEqual(answer, { status: 200, text: "signed" });
  url.searchParams.delete("signature");
  assert.equal((await ask(box, 49983, url.pathname + url.search)).status, 401);
});

core("a private sandbox wants its traffic token", async () => {
  const box = await create({ network: { allowPublicTraffic: false } });
  assert.ok(box.trafficAccessToken);
  assert.equal((await ask(box, 8000)).status, 403);
  const headers = { "e2b-traffic-access-token": box.trafficAccessToken };
  assert.equal((await ask(box, 8000, "/", headers)).status, 502);
});

core("twenty sandboxes at once each do their own", async () => {
  const one = async (i) => {
    const box = await create({ envs: { N: String(i) } });
    const result = await box.commands.run("echo $N; sleep 0.5");
    assert.equal(await box.kill(), true);
    return result.stdout;
  };
  const all = await Promise.all(Array.from({ length: 20 }, (_, i) => one(i)));
  assert.deepEqual(all, Array.from({ length: 20 }, (_, i) => `${i}\n`));
});

test("who watches a sandbox that is ended is told", async () => {
  const box = await create();
  let left;
  await box.files.watchDir("/tmp", () => {}, { timeoutMs: 0, onExit: (error) => void (left = error ?? "no error") });
  await sleep(200);
  await box.kill();
  await until(() => left);
  assert.ok(left instanceof Error, String(left));
});
