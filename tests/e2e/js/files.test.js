// Files through E2B's SDK.
"use strict";

const assert = require("node:assert/strict");
const crypto = require("node:crypto");
const path = require("node:path");
const { AuthenticationError, FileNotFoundError, FileType, InvalidArgumentError } = require("e2b");
const { bare, core, directory, failure, fs, root, sandbox, test, user } = require("./helper.js");

let box;
test.before(async () => {
  box = await sandbox();
});

const MIB = 1 << 20;
const every = Uint8Array.from({ length: 1024 }, (_, i) => i & 255); // each value of a byte
const digest = (data) => crypto.createHash("sha256").update(data).digest("hex");

// size bytes that differ from place to place, without a generator's cost for each
function noise(size) {
  const data = Buffer.alloc(size, crypto.randomBytes(65521));
  for (let at = 0; at + 8 <= size; at += MIB) data.writeDoubleLE(at, at);
  return data;
}

async function collect(stream) {
  const hash = crypto.createHash("sha256");
  let size = 0;
  for await (const chunk of stream) {
    hash.update(chunk);
    size += chunk.length;
  }
  return { digest: hash.digest("hex"), size };
}

core("text is written and read", async () => {
  const file = path.join(directory(), "f.txt");
  const text = "first\nsecond: žluťoučký 世界 🌍\n";
  const info = await box.files.write(file, text);
  assert.equal(info.path, file);
  assert.equal(info.name, "f.txt");
  assert.equal(info.type, "file");
  assert.equal(await box.files.read(file), text);
  assert.equal(fs.readFileSync(file, "utf8"), text);
});

core("bytes of every value survive as bytes, blob and stream", async () => {
  const file = path.join(directory(), "f.bin");
  await box.files.write(file, every.buffer);
  const bytes = await box.files.read(file, { format: "bytes" });
  assert.deepEqual(bytes, every);
  const blob = await box.files.read(file, { format: "blob" });
  assert.ok(blob instanceof Blob);
  assert.deepEqual(new Uint8Array(await blob.arrayBuffer()), every);
  const stream = await box.files.read(file, { format: "stream" });
  assert.equal((await collect(stream)).digest, digest(every));
});

core("a blob and a stream are written like bytes", async () => {
  const dir = directory();
  await box.files.write(path.join(dir, "blob"), new Blob([every, every]));
  await box.files.write(path.join(dir, "stream"), new Blob([every, every]).stream());
  for (const name of ["blob", "stream"]) {
    const data = fs.readFileSync(path.join(dir, name));
    assert.equal(digest(data), digest(Buffer.concat([every, every])));
  }
});

core("the raw upload is the same file", async () => {
  const file = path.join(directory(), "f");
  await box.files.write(file, every.buffer, { useOctetStream: true });
  assert.deepEqual(new Uint8Array(fs.readFileSync(file)), every);
});

core("an empty file is a file", async () => {
  const dir = directory();
  await box.files.write(path.join(dir, "text"), "");
  await box.files.write(path.join(dir, "raw"), "", { useOctetStream: true });
  await box.files.write(path.join(dir, "gzip"), "", { gzip: true });
  for (const name of ["text", "raw", "gzip"]) {
    const file = path.join(dir, name);
    assert.equal((await box.files.getInfo(file)).size, 0);
    assert.equal(await box.files.read(file), "");
    assert.deepEqual(await box.files.read(file, { format: "bytes" }), new Uint8Array(0));
    assert.equal((await box.files.read(file, { format: "blob" })).size, 0);
    assert.equal((await collect(await box.files.read(file, { format: "stream" }))).size, 0);
    assert.equal(await box.files.read(file, { gzip: true }), "");
  }
});

core("gzip on the way changes nothing in the file", async () => {
  const file = path.join(directory(), "f");
  const text = "the same line again and again\n".repeat(40000);
  await box.files.write(file, text, { gzip: true });
  assert.equal(fs.readFileSync(file, "utf8"), text);
  assert.equal(await box.files.read(file, { gzip: true }), text);
  assert.equal(await box.files.read(file), text);
});

core("a longer file is replaced by a shorter one", async () => {
  const file = path.join(directory(), "f");
  await box.files.write(file, "a long text that will be gone");
  await box.files.write(file, "short");
  assert.equal(await box.files.read(file), "short");
});

core("parents are made when a file is written", async () => {
  const dir = directory();
  await box.files.write(path.join(dir, "a/b/c/f"), "x");
  assert.equal(fs.readFileSync(path.join(dir, "a/b/c/f"), "utf8"), "x");
  assert.equal(fs.statSync(path.join(dir, "a/b")).mode & 0o777, 0o755);
});

core("several files are written in one call", async () => {
  const dir = directory();
  const files = Array.from({ length: 30 }, (_, i) => ({
    path: path.join(dir, `sub${i % 3}`, `f${i}`),
    data: i % 2 ? `text ${i}` : new Blob([`blob ${i}`]),
  }));
  const infos = await box.files.write(files);
  assert.deepEqual(infos.map((i) => i.path), files.map((f) => f.path));
  for (let i = 0; i < 30; i++)
    assert.equal(fs.readFileSync(files[i].path, "utf8"), `${i % 2 ? "text" : "blob"} ${i}`);
});

test("no files at all is no error", async () => {
  assert.deepEqual(await box.files.write([]), []);
});

test("one path twice in one call is refused", async () => {
  const file = path.join(directory(), "f");
  const twice = [
    { path: file, data: "1" },
    { path: file, data: "2" },
  ];
  const error = await failure(box.files.write(twice));
  assert.ok(error instanceof InvalidArgumentError, String(error));
});

core("names of every script and with odd characters work", async () => {
  const dir = directory();
  for (const name of ["žluť 世界 🌍", "a b+c%20&d=e?#f;g", "quote'`$(x)", "-rf", "  lead", "tab\there"]) {
    const file = path.join(dir, name);
    await box.files.write(file, name);
    assert.equal(await box.files.read(file), name);
    assert.equal((await box.files.getInfo(file)).name, name);
    assert.ok(fs.existsSync(file));
  }
  const listed = (await box.files.list(dir)).map((e) => e.name);
  assert.equal(listed.length, 6);
});

core("a relative path lies in the home directory", async () => {
  const name = `cove-test-${crypto.randomBytes(8).toString("hex")}`;
  try {
    await box.files.write(`${name}/f`, "home");
    const info = await box.files.getInfo(`${name}/f`);
    assert.equal(info.path, path.join(user().homedir, name, "f"));
    assert.equal(await box.files.read(`~/${name}/f`), "home");
  } finally {
    await box.files.remove(name);
  }
  assert.equal(await box.files.exists(name), false);
});

test("256 MiB go up and down as bytes", async () => {
  const file = path.join(directory(), "big");
  const data = noise(256 * MIB);
  await box.files.write(file, new Blob([data]), { requestTimeoutMs: 50000 });
  assert.equal(fs.statSync(file).size, data.length);
  const back = await box.files.read(file, { format: "bytes", requestTimeoutMs: 50000 });
  assert.ok(Buffer.compare(back, data) === 0, "what came back is something else");
  fs.rmSync(file);
});

test("256 MiB go up and down as streams", async () => {
  const file = path.join(directory(), "big");
  const piece = noise(4 * MIB);
  const expected = crypto.createHash("sha256");
  let left = 64;
  const source = new ReadableStream({
    pull(controller) {
      if (!left--) return controller.close();
      piece.writeUInt32LE(left, 5);
      expected.update(piece);
      controller.enqueue(Uint8Array.from(piece));
    },
  });
  await box.files.write(file, source, { requestTimeoutMs: 50000 });
  assert.equal(fs.statSync(file).size, 256 * MIB);
  const back = await collect(await box.files.read(file, { format: "stream" }));
  assert.equal(back.size, 256 * MIB);
  assert.equal(back.digest, expected.digest("hex"));
  fs.rmSync(file);
});

test("a download that is dropped half way harms nobody", async () => {
  const file = path.join(directory(), "big");
  fs.writeFileSync(file, noise(64 * MIB));
  for (let i = 0; i < 5; i++) {
    const reader = (await box.files.read(file, { format: "stream" })).getReader();
    assert.ok((await reader.read()).value.length > 0);
    await reader.cancel();
  }
  assert.equal(await box.isRunning(), true);
  fs.rmSync(file);
});

test("an upload that breaks leaves the old file alone", async () => {
  const dir = directory();
  const file = path.join(dir, "f");
  await box.files.write(file, "old");
  let sent = 0;
  const source = new ReadableStream({
    pull(controller) {
      if (sent++ === 20) return controller.error(new Error("broken on purpose"));
      controller.enqueue(new Uint8Array(MIB));
    },
  });
  await failure(box.files.write(file, source));
  assert.equal(await box.files.read(file), "old");
  assert.deepEqual(fs.readdirSync(dir), ["f"]);
});

core("list goes as deep as asked", async () => {
  const dir = directory();
  fs.mkdirSync(path.join(dir, "a/b/c"), { recursive: true });
  fs.writeFileSync(path.join(dir, "f"), "");
  fs.writeFileSync(path.join(dir, "a/b/g"), "");
  const paths = async (options) =>
    (await box.files.list(dir, options)).map((e) => path.relative(dir, e.path)).sort();
  assert.deepEqual(await paths(), ["a", "f"]);
  assert.deepEqual(await paths({ depth: 1 }), ["a", "f"]);
  assert.deepEqual(await paths({ depth: 2 }), ["a", "a/b", "f"]);
  assert.deepEqual(await paths({ depth: 3 }), ["a", "a/b", "a/b/c", "a/b/g", "f"]);
  assert.deepEqual(await paths({ depth: 100 }), ["a", "a/b", "a/b/c", "a/b/g", "f"]);
});

test("a directory of ten thousand files is listed whole", async () => {
  const dir = directory();
  for (let i = 0; i < 10000; i++) fs.writeFileSync(path.join(dir, `f${i}`), "");
  const names = new Set((await box.files.list(dir)).map((e) => e.name));
  assert.equal(names.size, 10000);
});

core("list of something else than a directory fails and says why", async () => {
  const file = path.join(directory(), "f");
  fs.writeFileSync(file, "");
  assert.ok((await failure(box.files.list(file))) instanceof InvalidArgumentError);
  assert.ok((await failure(box.files.list(`${file}-not-there`))) instanceof FileNotFoundError);
});

core("getInfo tells all about a file", async () => {
  const file = path.join(directory(), "f");
  fs.writeFileSync(file, "12345");
  fs.chmodSync(file, 0o640);
  fs.utimesSync(file, 1700000000, 1700000000);
  const info = await box.files.getInfo(file);
  assert.equal(info.name, "f");
  assert.equal(info.path, file);
  assert.equal(info.type, FileType.FILE);
  assert.equal(info.size, 5);
  assert.equal(info.mode, 0o640);
  assert.equal(info.permissions, "-rw-r-----");
  assert.equal(info.owner, user().username);
  assert.equal(info.modifiedTime.getTime(), 1700000000000);
  assert.equal(info.symlinkTarget, undefined);
});

core("getInfo tells all about a directory", async () => {
  const dir = directory();
  const info = await box.files.getInfo(dir);
  assert.equal(info.type, FileType.DIR);
  assert.equal(info.mode, 0o777);
  assert.equal(info.permissions, "drwxrwxrwx");
  assert.equal(info.path, dir);
});

core("getInfo of nothing is not found", async () => {
  const error = await failure(box.files.getInfo(path.join(directory(), "nothing")));
  assert.ok(error instanceof FileNotFoundError, String(error));
});

test("set-id and sticky bits and each permission are told", async () => {
  const file = path.join(directory(), "f");
  fs.writeFileSync(file, "");
  for (const [mode, text] of [[0o000, "----------"], [0o777, "-rwxrwxrwx"], [0o421, "-r---w---x"]]) {
    fs.chmodSync(file, mode);
    const info = await box.files.getInfo(file);
    assert.equal(info.permissions, text);
    assert.equal(info.mode, mode);
  }
});

core("a link is described as its target, with the place it leads to", async () => {
  const dir = directory();
  fs.writeFileSync(path.join(dir, "target"), "12345");
  fs.mkdirSync(path.join(dir, "folder"));
  fs.symlinkSync("target", path.join(dir, "link"));
  fs.symlinkSync(path.join(dir, "folder"), path.join(dir, "way"));
  const link = await box.files.getInfo(path.join(dir, "link"));
  assert.equal(link.type, FileType.FILE);
  assert.equal(link.symlinkTarget, path.join(dir, "target"));
  assert.equal(link.permissions, "Lrwxrwxrwx");
  const way = await box.files.getInfo(path.join(dir, "way"));
  assert.equal(way.type, FileType.DIR);
  assert.equal(way.symlinkTarget, path.join(dir, "folder"));
  assert.equal(await box.files.read(path.join(dir, "link")), "12345");
  await box.files.write(path.join(dir, "link"), "through");
  assert.equal(fs.readFileSync(path.join(dir, "target"), "utf8"), "through");
  assert.ok(fs.lstatSync(path.join(dir, "link")).isSymbolicLink());
});

test("remove takes the link and not what it leads to", async () => {
  const dir = directory();
  fs.mkdirSync(path.join(dir, "folder"));
  fs.writeFileSync(path.join(dir, "folder/kept"), "");
  fs.symlinkSync(path.join(dir, "folder"), path.join(dir, "link"));
  await box.files.remove(path.join(dir, "link"));
  assert.ok(!fs.existsSync(path.join(dir, "link")));
  assert.ok(fs.existsSync(path.join(dir, "folder/kept")));
});

core("exists is true for files and directories and false for nothing", async () => {
  const dir = directory();
  fs.writeFileSync(path.join(dir, "f"), "");
  assert.equal(await box.files.exists(dir), true);
  assert.equal(await box.files.exists(path.join(dir, "f")), true);
  assert.equal(await box.files.exists(path.join(dir, "g")), false);
  assert.equal(await box.files.exists(path.join(dir, "no/such/parent")), false);
});

core("rename moves a file, with the directories it needs", async () => {
  const dir = directory();
  await box.files.write(path.join(dir, "old"), "text");
  const info = await box.files.rename(path.join(dir, "old"), path.join(dir, "x/y/new"));
  assert.equal(info.path, path.join(dir, "x/y/new"));
  assert.equal(info.name, "new");
  assert.equal(await box.files.exists(path.join(dir, "old")), false);
  assert.equal(await box.files.read(path.join(dir, "x/y/new")), "text");
});

core("rename moves a directory with all in it", async () => {
  const dir = directory();
  await box.files.write(path.join(dir, "a/b/f"), "deep");
  const info = await box.files.rename(path.join(dir, "a"), path.join(dir, "z"));
  assert.equal(info.type, FileType.DIR);
  assert.equal(await box.files.read(path.join(dir, "z/b/f")), "deep");
});

core("rename of nothing is not found", async () => {
  const dir = directory();
  const error = await failure(box.files.rename(path.join(dir, "no"), path.join(dir, "b")));
  assert.ok(error instanceof FileNotFoundError, String(error));
});

core("remove takes files and whole trees, and nothing is fine", async () => {
  const dir = directory();
  await box.files.write(path.join(dir, "a/b/c/f"), "");
  await box.files.write(path.join(dir, "g"), "");
  await box.files.remove(path.join(dir, "g"));
  await box.files.remove(path.join(dir, "a"));
  await box.files.remove(path.join(dir, "never-was"));
  assert.deepEqual(fs.readdirSync(dir), []);
});

core("makeDir is true when it made one and false when it was there", async () => {
  const dir = path.join(directory(), "a/b/c");
  assert.equal(await box.files.makeDir(dir), true);
  assert.equal(await box.files.makeDir(dir), false);
  assert.ok(fs.statSync(dir).isDirectory());
});

test("makeDir over a file is an invalid argument", async () => {
  const file = path.join(directory(), "f");
  fs.writeFileSync(file, "");
  assert.ok((await failure(box.files.makeDir(file))) instanceof InvalidArgumentError);
});

core("reading nothing is not found and reading a directory is invalid", async () => {
  const dir = directory();
  for (const format of ["text", "bytes", "blob", "stream"]) {
    const none = await failure(box.files.read(path.join(dir, "none"), { format }));
    assert.ok(none instanceof FileNotFoundError, `${format}: ${none}`);
    const folder = await failure(box.files.read(dir, { format }));
    assert.ok(folder instanceof InvalidArgumentError, `${format}: ${folder}`);
  }
});

test("writing over a directory is an invalid argument", async () => {
  const dir = directory();
  const error = await failure(box.files.write(dir, "x"));
  assert.ok(error instanceof InvalidArgumentError, String(error));
  assert.ok(fs.statSync(dir).isDirectory());
});

core("metadata is kept with the file and replaced as a whole", async () => {
  const file = path.join(directory(), "f");
  const first = await box.files.write(file, "x", { metadata: { owner: "me", purpose: "test = 1" } });
  assert.deepEqual(first.metadata, { owner: "me", purpose: "test = 1" });
  assert.deepEqual((await box.files.getInfo(file)).metadata, first.metadata);
  const [listed] = await box.files.list(path.dirname(file));
  assert.deepEqual(listed.metadata, first.metadata);
  await box.files.write(file, "y", { metadata: { other: "2" }, useOctetStream: true });
  assert.deepEqual((await box.files.getInfo(file)).metadata, { other: "2" });
  await box.files.write(file, "z");
  assert.equal((await box.files.getInfo(file)).metadata, undefined);
});

test("a file belongs to the user who is named", root, async () => {
  const dir = directory();
  await box.files.write(path.join(dir, "sub/f"), "x", { user: "nobody" });
  await box.files.makeDir(path.join(dir, "made"), { user: "nobody" });
  for (const name of ["sub", "sub/f", "made"]) {
    const info = await box.files.getInfo(path.join(dir, name));
    assert.equal(info.owner, "nobody");
    assert.equal(info.group, "nogroup");
  }
});

core("a user that does not exist is an authentication error", async () => {
  const user = "no-such-user";
  const file = path.join(directory(), "f");
  for (const call of [
    () => box.files.read(file, { user }),
    () => box.files.write(file, "", { user }),
    () => box.files.list("/", { user }),
    () => box.files.getInfo("/", { user }),
    () => box.files.makeDir(file, { user }),
    () => box.files.remove(file, { user }),
  ])
    assert.ok((await failure(call())) instanceof AuthenticationError, String(call));
});

test("fifty files are written and read at once", async () => {
  const dir = directory();
  const one = async (i) => {
    const file = path.join(dir, `f${i}`);
    const data = noise(MIB + i);
    await box.files.write(file, new Blob([data]));
    assert.equal(digest(await box.files.read(file, { format: "bytes" })), digest(data));
  };
  await Promise.all(Array.from({ length: 50 }, (_, i) => one(i)));
});

test("a URL without a signature serves an open guest", bare, async () => {
  const file = path.join(directory(), "f.txt");
  await box.files.write(file, "open");
  const answer = await fetch(await box.downloadUrl(file));
  assert.equal(await answer.text(), "open");
  assert.match(answer.headers.get("content-type"), /^text\/plain/);
  assert.match(answer.headers.get("content-disposition"), /f\.txt/);
});
