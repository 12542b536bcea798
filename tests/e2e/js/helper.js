// What the JavaScript tests share. test_javascript.py starts the guest and says where it is;
// core() declares a test that is run again under the sanitizers, test() any other.
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const { test } = require("node:test");
const { Sandbox } = require("e2b");

const home = process.env.COVE_DIR; // an empty directory that the guest's user may write
let directories = 0;

function directory() {
  const dir = path.join(home, `d${directories++}`);
  fs.mkdirSync(dir);
  fs.chmodSync(dir, 0o777);
  return dir;
}

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

async function until(what, ms = 10000) {
  for (const end = Date.now() + ms; Date.now() < end; await sleep(10)) {
    const value = await what();
    if (value) return value;
  }
  throw new Error(`not within ${ms} ms: ${what}`);
}

// The error that a promise fails with; a promise that does not fail is the caller's error.
const failure = (promise) =>
  promise.then(
    (value) => {
      throw new Error(`did not fail but gave ${JSON.stringify(value)}`);
    },
    (error) => error,
  );

function alive(pid) {
  try {
    return !/^State:\s+Z/m.test(fs.readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return false;
  }
}

const root = process.getuid() === 0 ? {} : { skip: "the guest needs root to become another user" };

module.exports = {
  alive,
  core: test,
  directory,
  failure,
  root,
  sandbox: () => Sandbox.create(),
  sleep,
  test,
  until,
};
