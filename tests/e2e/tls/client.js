// What a user of the JavaScript SDK does with a server of its own domain; see client.py.
"use strict";

const assert = require("node:assert/strict");
const crypto = require("node:crypto");
const { Sandbox } = require("e2b");

const { E2B_DOMAIN } = process.env;

async function main() {
  const box = await Sandbox.create({ timeoutMs: 60000, envs: { A: "1" } });
  assert.equal((await box.commands.run("echo $A")).stdout, "1\n");
  const data = crypto.randomBytes(3 << 20);
  await box.files.write("data", new Blob([data]));
  assert.ok(Buffer.compare(await box.files.read("data", { format: "bytes" }), data) === 0);
  const again = await Sandbox.connect(box.sandboxId);
  assert.equal(await again.isRunning(), true);

  const url = await box.downloadUrl("data", { useSignatureExpiration: 60 });
  assert.ok(url.startsWith(`https://49983-${box.sandboxId}.${E2B_DOMAIN}/files?`), url);
  const got = await fetch(url);
  assert.equal(got.status, 200);
  assert.ok(Buffer.compare(Buffer.from(await got.arrayBuffer()), data) === 0);
  const form = new FormData();
  form.append("file", new Blob(["up"]), "f");
  assert.equal((await fetch(await box.uploadUrl("up"), { method: "POST", body: form })).status, 200);
  assert.equal(await box.files.read("up"), "up");

  assert.equal((await fetch(`https://${box.getHost(8000)}/`)).status, 502);
  await box.files.write("www/index.html", "hello");
  await box.commands.run("exec python3 -m http.server -d www 8000", { background: true, timeoutMs: 0 });
  await box.commands.run("until bash -c '>/dev/tcp/127.0.0.1/8000' 2>/dev/null; do sleep 0.02; done");
  const page = await fetch(`https://${box.getHost(8000)}/`);
  assert.equal(await page.text(), "hello");

  assert.equal(await box.kill(), true);
  assert.equal(await box.isRunning(), false);
  console.log("all is well");
  process.exit(0);
}

main().catch((error) => {
  console.error(error, error.cause);
  process.exit(1);
});
