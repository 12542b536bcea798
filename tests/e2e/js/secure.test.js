// A guest with an access token, and signed URLs.
"use strict";

const assert = require("node:assert/strict");
const path = require("node:path");
const { AuthenticationError, Sandbox } = require("e2b");
const { core, directory, failure, served, test, visit } = require("./helper.js");

const token = process.env.COVE_TOKEN;
const url = process.env.E2B_SANDBOX_URL;

// What Sandbox.create() makes of the control plane's answer.
const sandbox = (envdAccessToken) =>
  new Sandbox({
    sandboxId: process.env.COVE_SANDBOX ?? "debug_sandbox_id",
    envdVersion: "99.99.99",
    envdAccessToken,
    debug: !served,
    sandboxUrl: url,
  });

const box = sandbox(token);

const form = (text) => {
  const data = new FormData();
  data.append("file", new Blob([text]), "name-that-path-overrides");
  return { method: "POST", body: data };
};

core("the right token opens everything", async () => {
  const file = path.join(directory(), "f");
  await box.files.write(file, "text");
  assert.equal(await box.files.read(file), "text");
  assert.equal((await box.commands.run("echo hi")).stdout, "hi\n");
  assert.equal((await box.files.getInfo(file)).size, 4);
});

core("a wrong token or none is an authentication error", async () => {
  for (const other of [sandbox(undefined), sandbox("wrong"), sandbox(`${token}x`)]) {
    assert.ok((await failure(other.commands.run("true"))) instanceof AuthenticationError);
    assert.ok((await failure(other.files.read("/etc/passwd"))) instanceof AuthenticationError);
    assert.ok((await failure(other.files.write("/tmp/x", ""))) instanceof AuthenticationError);
    assert.ok((await failure(other.files.list("/"))) instanceof AuthenticationError);
    assert.ok((await failure(other.files.watchDir("/", () => {}))) instanceof AuthenticationError);
  }
});

core("the health of a secured guest needs no token", async () => {
  assert.equal(await sandbox(undefined).isRunning(), true);
});

core("a signed URL downloads its file without a token", async () => {
  const file = path.join(directory(), "with space & ünï.txt");
  await box.files.write(file, "signed");
  const answer = await visit(await box.downloadUrl(file));
  assert.equal(answer.status, 200);
  assert.equal(await answer.text(), "signed");
});

core("a signed URL uploads its file without a token", async () => {
  const file = path.join(directory(), "up.txt");
  const answer = await visit(await box.uploadUrl(file), form("came by URL"));
  assert.equal(answer.status, 200);
  assert.equal((await answer.json())[0].path, file);
  assert.equal(await box.files.read(file), "came by URL");
});

core("a signature is good for its path and operation only", async () => {
  const dir = directory();
  await box.files.write(path.join(dir, "a"), "a");
  await box.files.write(path.join(dir, "b"), "b");
  const down = new URL(await box.downloadUrl(path.join(dir, "a")));
  down.searchParams.set("path", path.join(dir, "b"));
  assert.equal((await visit(down)).status, 401);
  const up = await box.downloadUrl(path.join(dir, "a"));
  assert.equal((await visit(up, form("not allowed"))).status, 401);
  assert.equal(await box.files.read(path.join(dir, "a")), "a");
  const user = new URL(await box.downloadUrl(path.join(dir, "a")));
  user.searchParams.set("username", "root");
  assert.equal((await visit(user)).status, 401);
});

core("a URL without a signature is refused", async () => {
  const bare = new URL(await box.downloadUrl("/etc/passwd"));
  bare.searchParams.delete("signature");
  const answer = await visit(bare);
  assert.equal(answer.status, 401);
  assert.equal((await answer.json()).code, 401);
});

core("a signature that expires works before and not after", async () => {
  const file = path.join(directory(), "f");
  await box.files.write(file, "x");
  const good = await box.downloadUrl(file, { useSignatureExpiration: 600 });
  assert.equal((await visit(good)).status, 200);
  const late = await box.downloadUrl(file, { useSignatureExpiration: -10 });
  const answer = await visit(late);
  assert.equal(answer.status, 401);
  assert.match((await answer.json()).message, /expired/);
  const longer = new URL(late);
  longer.searchParams.set("signature_expiration", "9999999999");
  assert.equal((await visit(longer)).status, 401);
});

test("a signed URL names its user", async () => {
  const file = path.join(directory(), "f");
  const name = (await box.commands.run("id -un")).stdout.trim();
  const answer = await visit(await box.uploadUrl(file, { user: name }), form("x"));
  assert.equal(answer.status, 200);
  assert.equal((await box.files.getInfo(file)).owner, name);
});
