// Commands and processes through E2B's SDK.
"use strict";

const assert = require("node:assert/strict");
const { CommandExitError, InvalidArgumentError, TimeoutError, AuthenticationError } = require("e2b");
const { alive, core, directory, failure, kill, root, sandbox, test, until } = require("./helper.js");

let box;
test.before(async () => {
  box = await sandbox();
});

const start = (text, options) => box.commands.run(text, { background: true, ...options });

core("a command gives its output and exit code", async () => {
  const result = await box.commands.run("echo out; echo err >&2");
  assert.equal(result.stdout, "out\n");
  assert.equal(result.stderr, "err\n");
  assert.equal(result.exitCode, 0);
});

core("a command that fails raises its code and all its output", async () => {
  const error = await failure(box.commands.run("echo out; echo err >&2; exit 7"));
  assert.ok(error instanceof CommandExitError);
  assert.equal(error.exitCode, 7);
  assert.equal(error.stdout, "out\n");
  assert.equal(error.stderr, "err\n");
});

test("every exit code arrives as it was", async () => {
  for (const code of [1, 2, 3, 42, 126, 127, 128, 137, 254, 255]) {
    const error = await failure(box.commands.run(`exit ${code}`));
    assert.equal(error.exitCode, code);
  }
});

test("a command killed by its own signal tells which one", async () => {
  const error = await failure(box.commands.run("kill -TERM $$"));
  assert.ok(error instanceof CommandExitError);
  assert.equal(error.exitCode, -1);
  assert.equal(error.error, "signal: terminated");
});

test("a program that does not exist is the shell's 127", async () => {
  const error = await failure(box.commands.run("no-such-program-anywhere"));
  assert.equal(error.exitCode, 127);
  assert.match(error.stderr, /not found/);
});

core("output arrives through the callbacks while the command runs", async () => {
  const out = [];
  const err = [];
  const handle = await start("echo one; echo two >&2; read line; echo $line", {
    stdin: true,
    onStdout: (data) => out.push(data),
    onStderr: (data) => err.push(data),
  });
  await until(() => out.join("") === "one\n" && err.join("") === "two\n");
  await handle.sendStdin("three\n");
  const result = await handle.wait();
  assert.equal(out.join(""), "one\nthree\n");
  assert.equal(result.stdout, "one\nthree\n");
});

core("a background command returns at once and can be waited for", async () => {
  const began = Date.now();
  const handle = await start("sleep 1; echo done");
  assert.ok(Date.now() - began < 900, "run() waited for the command");
  assert.ok(alive(handle.pid));
  assert.equal(handle.exitCode, undefined);
  const result = await handle.wait();
  assert.equal(result.stdout, "done\n");
  assert.equal(handle.exitCode, 0);
});

core("input reaches the command, and closing it is its end of file", async () => {
  const handle = await start("cat", { stdin: true });
  await handle.sendStdin("hello ");
  await handle.sendStdin("wörld\n");
  await box.commands.sendStdin(handle.pid, new Uint8Array([0x62, 0x79, 0x65]));
  await handle.closeStdin();
  const result = await handle.wait();
  assert.equal(result.stdout, "hello wörld\nbye");
});

test("a megabyte of input comes back whole", async () => {
  const text = "0123456789abcdef".repeat(65536);
  const handle = await start("cat", { stdin: true });
  for (let at = 0; at < text.length; at += 131072)
    await handle.sendStdin(text.slice(at, at + 131072));
  await handle.closeStdin();
  const result = await handle.wait();
  assert.ok(result.stdout === text, `${result.stdout.length} of ${text.length} bytes`);
});

test("input to a command without input is refused", async () => {
  const handle = await start("sleep 30");
  const error = await failure(handle.sendStdin("x"));
  assert.match(error.message, /without input/);
  await handle.kill();
});

test("a command without input reads the end of file", async () => {
  const result = await box.commands.run("cat; echo end");
  assert.equal(result.stdout, "end\n");
});

core("kill ends a command and whatever it started", async () => {
  const handle = await start("sleep 1000 & echo $!; wait");
  const child = Number(await until(() => handle.stdout));
  assert.ok(alive(child));
  assert.equal(await handle.kill(), true);
  const error = await failure(handle.wait());
  assert.equal(error.exitCode, -1);
  assert.equal(error.error, "signal: killed");
  await until(() => !alive(child) && !alive(handle.pid));
});

core("kill of a process that is not there is false", async () => {
  const handle = await start("true");
  await handle.wait();
  assert.equal(await box.commands.kill(handle.pid), false);
  assert.equal(await box.commands.kill(4194303), false);
});

core("a time limit kills the command", async () => {
  const handle = await start("echo begun; sleep 1000", { timeoutMs: 700 });
  await until(() => handle.stdout === "begun\n");
  const error = await failure(handle.wait());
  assert.ok(error instanceof TimeoutError, String(error));
  await until(() => !alive(handle.pid));
});

test("a command in the foreground is killed by its time limit too", async () => {
  const began = Date.now();
  const error = await failure(box.commands.run("sleep 1000", { timeoutMs: 300 }));
  assert.ok(error instanceof TimeoutError, String(error));
  assert.ok(Date.now() - began < 5000);
});

test("time limit 0 is none", async () => {
  const result = await box.commands.run("sleep 0.3; echo $?", { timeoutMs: 0 });
  assert.equal(result.stdout, "0\n");
});

core("environment variables reach the command unchanged", async () => {
  const envs = { A: "1", EMPTY: "", TEXT: "two words; $HOME 'and' \"more\"\n", UNI: "žluťoučký 🐎" };
  const result = await box.commands.run('printf "%s|" "$A" "$EMPTY" "$TEXT" "$UNI"', { envs });
  assert.equal(result.stdout, "1||two words; $HOME 'and' \"more\"\n|žluťoučký 🐎|");
});

test("one command's environment is not the next one's", async () => {
  await box.commands.run("true", { envs: { ONLY_ONCE: "x" } });
  const result = await box.commands.run('echo "[$ONLY_ONCE]"');
  assert.equal(result.stdout, "[]\n");
});

core("a command runs in the directory it is given", async () => {
  const dir = directory();
  const result = await box.commands.run("pwd", { cwd: dir });
  assert.equal(result.stdout, `${dir}\n`);
});

test("a directory that does not exist is an invalid argument", async () => {
  const error = await failure(box.commands.run("pwd", { cwd: "/no/such/place" }));
  assert.ok(error instanceof InvalidArgumentError, String(error));
  assert.match(error.message, /cwd '\/no\/such\/place' does not exist/);
});

test("a command runs as the user it is given", root, async () => {
  const names = await box.commands.run("id -un; id -gn; echo $USER", { user: "nobody" });
  assert.equal(names.stdout, "nobody\nnogroup\nnobody\n");
  const name = await box.commands.run("id -un", { user: "root" });
  assert.equal(name.stdout, "root\n");
});

core("a user that does not exist is an authentication error", async () => {
  const error = await failure(box.commands.run("true", { user: "no-such-user" }));
  assert.ok(error instanceof AuthenticationError, String(error));
  assert.match(error.message, /no-such-user/);
});

core("text of every script survives commands and output", async () => {
  const text = "Grüße, κόσμε, мир, 世界, עולם, 🌍👩‍👩‍👧, e\u0301, \u{10ffff}";
  const result = await box.commands.run(`printf %s '${text}'`);
  assert.equal(result.stdout, text);
});

test("a character cut by a flush is put together again", async () => {
  const script = "printf '\\360\\237'; sleep 0.2; printf '\\214\\215'";
  const result = await box.commands.run(script);
  assert.equal(result.stdout, "🌍");
});

test("100 MB of output arrive whole", async () => {
  const line = `${"0123456789".repeat(10)}\n`.slice(1); // 100 bytes
  const size = 100e6;
  let bytes = 0;
  let wrong = 0;
  let rest = "";
  const result = await box.commands.run(`yes ${line.trim()} | head -c ${size}; echo end >&2`, {
    onStdout: (data) => {
      bytes += data.length;
      rest += data;
      const whole = Math.floor(rest.length / line.length) * line.length;
      if (rest.slice(0, whole) !== line.repeat(whole / line.length)) wrong++;
      rest = rest.slice(whole);
    },
  });
  assert.equal(bytes, size);
  assert.equal(result.stdout.length, size);
  assert.equal(wrong, 0);
  assert.equal(rest, "");
  assert.equal(result.stderr, "end\n");
});

test("200 commands in a row give 200 answers", async () => {
  for (let i = 0; i < 200; i++) {
    const result = await box.commands.run(`echo ${i}`);
    assert.equal(result.stdout, `${i}\n`);
  }
});

test("100 commands at once do not mix", async () => {
  const all = Array.from({ length: 100 }, (_, i) =>
    box.commands.run(`echo ${i}; sleep 0.2; echo ${i} >&2; echo $((${i} * 3))`),
  );
  for (const [i, result] of (await Promise.all(all)).entries()) {
    assert.equal(result.stdout, `${i}\n${i * 3}\n`);
    assert.equal(result.stderr, `${i}\n`);
  }
});

core("a process outlives its disconnected client and can be connected to", async () => {
  const first = await start("echo before; read line; echo $line; exit 3", { stdin: true });
  await until(() => first.stdout === "before\n");
  await first.disconnect();
  assert.ok(alive(first.pid));
  let seen = "";
  const again = await box.commands.connect(first.pid, { onStdout: (data) => (seen += data) });
  assert.equal(again.pid, first.pid);
  await again.sendStdin("after\n");
  const error = await failure(again.wait());
  assert.equal(error.exitCode, 3);
  assert.equal(seen, "after\n");
});

core("two clients see the same output", async () => {
  const one = await start("read line; echo $line", { stdin: true });
  const two = await box.commands.connect(one.pid);
  await one.sendStdin("both\n");
  assert.equal((await one.wait()).stdout, "both\n");
  assert.equal((await two.wait()).stdout, "both\n");
});

test("a client that comes after the end still learns how it ended", async () => {
  const first = await start("read line; exit 5", { stdin: true });
  await first.disconnect();
  await box.commands.sendStdin(first.pid, "\n");
  await until(() => !alive(first.pid));
  const late = await box.commands.connect(first.pid);
  assert.equal((await failure(late.wait())).exitCode, 5);
});

test("connecting to a process that never was is an error that names it", async () => {
  const error = await failure(box.commands.connect(4194303));
  assert.match(error.message, /process with pid 4194303 not found/);
});

core("the list has the processes that run and only those", async () => {
  const envs = { WHO: "me" };
  const cwd = directory();
  const handle = await start("sleep 1000", { envs, cwd });
  const found = (await box.commands.list()).find((p) => p.pid === handle.pid);
  assert.equal(found.cmd, "/bin/bash");
  assert.deepEqual(found.args, ["-l", "-c", "sleep 1000"]);
  assert.deepEqual(found.envs, envs);
  assert.equal(found.cwd, cwd);
  await handle.kill();
  await failure(handle.wait());
  const pids = (await box.commands.list()).map((p) => p.pid);
  assert.ok(!pids.includes(handle.pid), `${handle.pid} is still listed`);
});

test("a daemon that holds the output open does not hold the command", async () => {
  const began = Date.now();
  const result = await box.commands.run("sleep 30 & echo $!");
  assert.ok(Date.now() - began < 5000);
  const child = Number(result.stdout);
  assert.ok(alive(child));
  kill(child);
});

core("isRunning is true", async () => {
  assert.equal(await box.isRunning(), true);
});

test("an aborted call leaves the process running", async () => {
  const abort = new AbortController();
  const mark = `mark-${process.pid}`;
  const call = failure(box.commands.run(`echo ${mark} >/dev/null; sleep 1000`, { signal: abort.signal }));
  const find = async () => (await box.commands.list()).find((p) => p.args[2]?.includes(mark));
  const found = await until(find);
  abort.abort();
  await call;
  assert.ok(alive(found.pid));
  assert.equal(await box.commands.kill(found.pid), true);
  await until(async () => !(await find()));
});
