// The file system, users and processes of the machine that the guest runs on. That is this one, or,
// through `cove serve`, a sandbox: then helpers/agent.py inside it makes each call. Its input and
// output are the descriptors in COVE_AGENT, and we wait for its answer as for a system call.
"use strict";

const local = require("node:fs");
const os = require("node:os");

const [input, output] = (process.env.COVE_AGENT ?? "").split(",").map(Number);
const served = Boolean(process.env.COVE_AGENT);

function readLine() {
  const pieces = [];
  for (;;) {
    const piece = Buffer.alloc(1 << 20);
    const size = local.readSync(output, piece);
    if (size === 0) throw new Error("the agent in the sandbox has ended");
    pieces.push(piece.subarray(0, size));
    if (piece[size - 1] === 10) return Buffer.concat(pieces).toString();
  }
}

function call(name, ...args) {
  const request = Buffer.from(`${JSON.stringify({ call: name, args, kwargs: {} })}\n`);
  for (let at = 0; at < request.length; ) at += local.writeSync(input, request, at);
  const answer = JSON.parse(readLine());
  if ("errno" in answer) throw new Error(`${name}: ${answer.error}`);
  return answer.value;
}

const bytes = (data) => ({ bytes: Buffer.from(data).toString("base64") });

const TYPE = 0o170000;

function stat(name, file) {
  const { st_mode: mode, st_size: size } = call(name, file).fields;
  return {
    mode,
    size,
    isDirectory: () => (mode & TYPE) === 0o040000,
    isSymbolicLink: () => (mode & TYPE) === 0o120000,
  };
}

function append(file, data) {
  const { file: opened } = call("builtins.open", file, "ab");
  call(`${opened}.write`, bytes(data));
  call(`${opened}.close`);
}

const remote = {
  appendFileSync: append,
  chmodSync: (file, mode) => call("os.chmod", file, mode),
  existsSync: (file) => call("os.path.exists", file),
  lstatSync: (file) => stat("os.lstat", file),
  mkdirSync: (dir, options) => call(options?.recursive ? "os.makedirs" : "os.mkdir", dir),
  readFileSync: (file, encoding) => {
    const data = Buffer.from(call("simple.get", file).bytes, "base64");
    return encoding ? data.toString(encoding) : data;
  },
  readdirSync: (dir) => call("os.listdir", dir),
  renameSync: (from, to) => call("os.rename", from, to),
  rmSync: (file) => call("os.remove", file),
  statSync: (file) => stat("os.stat", file),
  symlinkSync: (target, link) => call("os.symlink", target, link),
  utimesSync: (file, accessed, modified) => call("os.utime", file, [accessed, modified]),
  writeFileSync: (file, data) => call("simple.put", file, bytes(data)),
};

function user() {
  const { pw_name: username, pw_dir: homedir } = call("pwd.getpwuid", call("os.geteuid")).fields;
  return { username, homedir };
}

function alive(pid) {
  if (served) return call("proc.alive", pid);
  try {
    return !/^State:\s+Z/m.test(local.readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return false;
  }
}

module.exports = {
  alive,
  fs: served ? remote : local,
  kill: served ? (pid) => call("os.kill", pid, 9) : (pid) => process.kill(pid, "SIGKILL"),
  served,
  user: served ? user : os.userInfo,
};
