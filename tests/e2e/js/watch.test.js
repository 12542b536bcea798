// Watching directories through E2B's SDK.
"use strict";

const assert = require("node:assert/strict");
const path = require("node:path");
const { FileNotFoundError, FilesystemEventType, InvalidArgumentError } = require("e2b");
const { core, directory, failure, fs, sandbox, sleep, test, until } = require("./helper.js");

let box;
test.before(async () => {
  box = await sandbox();
});

// A watch whose events are kept; has() waits for one of this name and type.
async function watch(dir, options) {
  const events = [];
  const handle = await box.files.watchDir(dir, (event) => void events.push(event), options);
  return {
    events,
    handle,
    has: (name, type) => until(() => events.find((e) => e.name === name && e.type === type)),
  };
}

core("each change is told with its name and type", async () => {
  const dir = directory();
  fs.writeFileSync(path.join(dir, "old"), "");
  const w = await watch(dir);
  await box.files.write(path.join(dir, "new"), "text");
  await w.has("new", FilesystemEventType.CREATE);
  await w.has("new", FilesystemEventType.WRITE);
  fs.appendFileSync(path.join(dir, "old"), "more");
  await w.has("old", FilesystemEventType.WRITE);
  fs.chmodSync(path.join(dir, "old"), 0o600);
  await w.has("old", FilesystemEventType.CHMOD);
  fs.renameSync(path.join(dir, "old"), path.join(dir, "renamed"));
  await w.has("old", FilesystemEventType.RENAME);
  await w.has("renamed", FilesystemEventType.CREATE);
  await box.files.remove(path.join(dir, "new"));
  await w.has("new", FilesystemEventType.REMOVE);
  await w.handle.stop();
});

core("a watch sees what a command does", async () => {
  const dir = directory();
  const w = await watch(dir);
  await box.commands.run(`touch made; mkdir folder; mv made moved; rm moved`, { cwd: dir });
  await w.has("made", FilesystemEventType.CREATE);
  await w.has("folder", FilesystemEventType.CREATE);
  await w.has("made", FilesystemEventType.RENAME);
  await w.has("moved", FilesystemEventType.CREATE);
  await w.has("moved", FilesystemEventType.REMOVE);
  await w.handle.stop();
});

core("a plain watch does not look into directories below", async () => {
  const dir = directory();
  fs.mkdirSync(path.join(dir, "below"));
  const w = await watch(dir);
  fs.writeFileSync(path.join(dir, "below", "hidden"), "x");
  fs.writeFileSync(path.join(dir, "last"), "x");
  await w.has("last", FilesystemEventType.CREATE);
  assert.deepEqual(w.events.filter((e) => e.name.includes("hidden")), []);
  await w.handle.stop();
});

core("a recursive watch sees directories that were there and those made later", async () => {
  const dir = directory();
  fs.mkdirSync(path.join(dir, "a/b"), { recursive: true });
  const w = await watch(dir, { recursive: true });
  fs.writeFileSync(path.join(dir, "a/b/deep"), "x");
  await w.has("a/b/deep", FilesystemEventType.CREATE);
  fs.mkdirSync(path.join(dir, "new"));
  await w.has("new", FilesystemEventType.CREATE);
  fs.writeFileSync(path.join(dir, "new/file"), "x");
  await w.has("new/file", FilesystemEventType.CREATE);
  fs.mkdirSync(path.join(dir, "p/q/r"), { recursive: true });
  fs.writeFileSync(path.join(dir, "p/q/r/s"), "x");
  await w.has("p/q/r/s", FilesystemEventType.CREATE);
  await w.handle.stop();
});

core("includeEntry describes the file of the event", async () => {
  const dir = directory();
  const w = await watch(dir, { includeEntry: true });
  await box.files.write(path.join(dir, "f"), "12345");
  const event = await w.has("f", FilesystemEventType.WRITE);
  assert.equal(event.entry.name, "f");
  assert.equal(event.entry.path, path.join(dir, "f"));
  assert.equal(event.entry.size, 5);
  assert.equal(event.entry.type, "file");
  fs.rmSync(path.join(dir, "f"));
  const gone = await w.has("f", FilesystemEventType.REMOVE);
  assert.equal(gone.entry, undefined);
  await w.handle.stop();
});

core("without includeEntry no entry is told", async () => {
  const dir = directory();
  const w = await watch(dir);
  await box.files.write(path.join(dir, "f"), "x");
  assert.equal((await w.has("f", FilesystemEventType.WRITE)).entry, undefined);
  await w.handle.stop();
});

core("a stopped watch tells nothing more", async () => {
  const dir = directory();
  let exits = 0;
  const w = await watch(dir, { onExit: () => void exits++ });
  fs.writeFileSync(path.join(dir, "one"), "");
  await w.has("one", FilesystemEventType.CREATE);
  await w.handle.stop();
  await until(() => exits === 1);
  const before = w.events.length;
  fs.writeFileSync(path.join(dir, "two"), "");
  await sleep(200);
  assert.equal(w.events.length, before);
});

test("a watch ends with an error at its time limit", async () => {
  let error;
  await watch(directory(), { timeoutMs: 400, onExit: (e) => void (error = e ?? "no error") });
  await until(() => error);
  assert.match(String(error), /[Tt]ime/);
});

test("the events of a thousand files arrive in order", async () => {
  const dir = directory();
  const w = await watch(dir);
  for (let i = 0; i < 1000; i++) fs.writeFileSync(path.join(dir, `f${i}`), "");
  await w.has("f999", FilesystemEventType.CREATE);
  const created = w.events.filter((e) => e.type === FilesystemEventType.CREATE).map((e) => e.name);
  assert.deepEqual(created, Array.from({ length: 1000 }, (_, i) => `f${i}`));
  await w.handle.stop();
});

test("twenty watches of one directory see the same", async () => {
  const dir = directory();
  const all = await Promise.all(Array.from({ length: 20 }, () => watch(dir)));
  fs.writeFileSync(path.join(dir, "seen"), "");
  for (const w of all) await w.has("seen", FilesystemEventType.CREATE);
  await Promise.all(all.map((w) => w.handle.stop()));
});

core("a directory that does not exist cannot be watched", async () => {
  const error = await failure(box.files.watchDir("/no/such/place", () => {}));
  assert.ok(error instanceof FileNotFoundError, String(error));
});

core("a file cannot be watched", async () => {
  const file = path.join(directory(), "file");
  fs.writeFileSync(file, "");
  const error = await failure(box.files.watchDir(file, () => {}));
  assert.ok(error instanceof InvalidArgumentError, String(error));
});
