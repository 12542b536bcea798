// Terminals through E2B's SDK.
"use strict";

const assert = require("node:assert/strict");
const { alive, core, directory, failure, root, sandbox, test, until } = require("./helper.js");

let box;
test.before(async () => {
  box = await sandbox();
});

const bytes = (text) => new TextEncoder().encode(text);

// A terminal with a quiet prompt; seen() is all it has shown.
async function open(options) {
  const decoder = new TextDecoder();
  let text = "";
  const handle = await box.pty.create({
    cols: 80,
    rows: 24,
    timeoutMs: 30000,
    onData: (data) => (text += decoder.decode(data, { stream: true })),
    ...options,
  });
  return {
    handle,
    seen: () => text,
    type: (line) => box.pty.sendInput(handle.pid, bytes(line)),
    shows: (pattern) => until(() => text.match(pattern)),
  };
}

core("a terminal runs what is typed and shows what it prints", async () => {
  const t = await open();
  await t.type("echo a$((20 + 22))z\n");
  await t.shows(/a42z/);
  await t.type("exit 0\n");
  assert.equal((await t.handle.wait()).exitCode, 0);
});

core("a terminal is one: it has a name, a size and a type", async () => {
  const t = await open({ cols: 133, rows: 47 });
  await t.type("tty; stty size; echo T=$TERM L=$LANG\n");
  await t.shows(/\/dev\/pts\/\d+/);
  await t.shows(/47 133/);
  await t.shows(/T=xterm-256color L=C.UTF-8/);
  await t.handle.kill();
});

core("resize changes the size and tells the program", async () => {
  const t = await open({ cols: 80, rows: 24 });
  await t.type("trap 'echo now-$(stty size)' WINCH; echo rea''dy\n");
  await t.shows(/ready/);
  await box.pty.resize(t.handle.pid, { cols: 101, rows: 33 });
  await t.type("stty size\n");
  await t.shows(/^33 101/m);
  await t.type("\n");
  await t.shows(/now-33 101/);
  await t.handle.kill();
});

test("resize of a process without a terminal is refused", async () => {
  const handle = await box.commands.run("sleep 30", { background: true });
  const error = await failure(box.pty.resize(handle.pid, { cols: 10, rows: 10 }));
  assert.match(error.message, /no terminal/);
  await handle.kill();
});

core("kill ends a terminal", async () => {
  const t = await open();
  await t.type("echo rea''dy\n");
  await t.shows(/ready/);
  assert.equal(await box.pty.kill(t.handle.pid), true);
  assert.equal((await failure(t.handle.wait())).exitCode, -1);
  await until(() => !alive(t.handle.pid));
  assert.equal(await box.pty.kill(t.handle.pid), false);
});

test("kill ends what a terminal left in the background", async () => {
  const t = await open();
  await t.type("sleep 1000 & echo pid-$!-\n");
  const child = Number((await t.shows(/pid-(\d+)-/))[1]);
  assert.ok(alive(child));
  await t.handle.kill();
  await until(() => !alive(child));
});

core("Ctrl-C interrupts and Ctrl-D ends", async () => {
  const t = await open();
  await t.type("bash -c 'echo pid-$$-; exec sleep 1000'\n");
  const child = Number((await t.shows(/pid-(\d+)-/))[1]);
  assert.ok(alive(child));
  await t.type("\x03");
  await until(() => !alive(child));
  await t.type("echo code-$?-\n");
  await t.shows(/code-130-/);
  await t.type("\x04");
  await until(() => !alive(t.handle.pid));
});

test("a terminal has the environment and directory it is given", async () => {
  const dir = directory();
  const t = await open({ envs: { COLOUR: "grün" }, cwd: dir });
  await t.type("echo $COLOUR-$(pwd)-\n");
  await t.shows(new RegExp(`grün-${dir}-`));
  await t.handle.kill();
});

test("a terminal belongs to the user it is given", root, async () => {
  const t = await open({ user: "nobody" });
  await until(() => !alive(t.handle.pid) || t.seen());
  const info = await box.commands.run("stat -c %U /proc/$PID", { envs: { PID: `${t.handle.pid}` } });
  assert.equal(info.stdout, "nobody\n");
  await t.handle.kill();
});

test("text of every script survives a terminal", async () => {
  const t = await open();
  await t.type("echo '<世界 🌍 ñ'\">\"\n");
  await t.shows(/<世界 🌍 ñ>/);
  await t.handle.kill();
});

core("a terminal outlives its disconnected client and can be connected to", async () => {
  const t = await open();
  await t.type("echo fi''rst\n");
  await t.shows(/first/);
  await t.handle.disconnect();
  assert.ok(alive(t.handle.pid));
  let text = "";
  const again = await box.pty.connect(t.handle.pid, {
    onData: (data) => (text += Buffer.from(data).toString()),
  });
  await box.pty.sendInput(again.pid, bytes("echo sec''ond\n"));
  await until(() => /second/.test(text));
  assert.ok(!/first/.test(text), "old output came again");
  await again.kill();
});

test("ten megabytes pass through a terminal", async () => {
  let size = 0;
  const handle = await box.pty.create({
    cols: 80,
    rows: 24,
    timeoutMs: 40000,
    onData: (data) => (size += data.length),
  });
  const line = "yes 0123456789012345678901234567890123456789012345678 | head -c 10000000; exit\n";
  await box.pty.sendInput(handle.pid, bytes(line));
  await handle.wait();
  assert.ok(size >= 10000000 + 200000, `${size} bytes, each line one more for its CR`);
});
