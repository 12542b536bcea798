// What the JavaScript tests share. test_javascript.py starts the guest and says where it is;
// COVE_SANDBOX is its sandbox's name where it belongs to a server;
// core() declares a test that is run again under the sanitizers, test() any other.
"use strict";

const path = require("node:path");
const { test } = require("node:test");
const { Sandbox } = require("e2b");
const { alive, fs, kill, served, user } = require("./there.js");

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

// fetch() of a URL that the SDK has made. With E2B_SANDBOX_URL those of all sandboxes begin alike, so
// a server has to be told which one is meant.
function visit(url, options) {
  const headers = { "E2b-Sandbox-Id": process.env.COVE_SANDBOX, "E2b-Sandbox-Port": "49983" };
  return fetch(url, served ? { ...options, headers } : options);
}

const bare = served ? { skip: "sandboxes of a server have a token" } : {};
const root = process.getuid() === 0 ? {} : { skip: "the guest needs root to become another user" };

module.exports = {
  alive,
  bare,
  core: test,
  directory,
  failure,
  fs,
  kill,
  root,
  sandbox: () => (served ? Sandbox.connect(process.env.COVE_SANDBOX) : Sandbox.create()),
  served,
  sleep,
  test,
  until,
  user,
  visit,
};
