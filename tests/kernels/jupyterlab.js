// Drives @jupyterlab/services against the server given, and prints what it saw as JSON.
const { ServerConnection, KernelManager, KernelSpecManager, KernelAPI, SessionManager } = require('@jupyterlab/services');
const WebSocket = require('ws');

const [url, token] = process.argv.slice(2);
let protocol = null;

class Socket extends WebSocket {
  constructor(address, protocols) {
    super(address, protocols);
    this.addEventListener('open', () => { protocol = this.protocol || protocol; });
  }
}

const settings = ServerConnection.makeSettings({
  baseUrl: url + '/', wsUrl: url.replace('http', 'ws') + '/', token, appendToken: true, fetch, Request, Headers, WebSocket: Socket,
});
const said = {};

// A restart cancels the library's own request for a subshell, if that is still on its way, and nobody handles that: in a
// browser it is a line of the console, here it would end the program.
process.on('unhandledRejection', why => { if (!/subshell creation failed.*Canceled/.test(String(why))) throw why; });

const run = (kernel, code, more = {}) => {
  const seen = [];
  const future = kernel.requestExecute({ code, ...more });
  future.onIOPub = m => seen.push(m);
  return { future, seen, done: future.done.then(reply => ({ reply, seen })) };
};
const find = (seen, type) => (seen.find(m => m.header.msg_type === type) || { content: {} }).content;

(async () => {
  const specs = new KernelSpecManager({ serverSettings: settings });
  await specs.ready;
  said.specs = 'sandbox-kernel' in specs.specs.kernelspecs;

  const manager = new KernelManager({ serverSettings: settings });
  await manager.ready;
  const kernel = await manager.startNew({ name: 'python3' });
  let r = await run(kernel, 'print("hello")\n6 * 7').done;
  said.protocol = protocol;
  said.stream = find(r.seen, 'stream').text;
  said.result = find(r.seen, 'execute_result').data['text/plain'];
  r = await run(kernel, '1 / 0').done;
  said.error = find(r.seen, 'error').ename;
  r = await run(kernel, 'from IPython.display import HTML; display(HTML("<b>x</b>"))').done;
  said.display = find(r.seen, 'display_data').data['text/html'] === '<b>x</b>';

  const asked = run(kernel, 'print("hi", input("who? "))', { allow_stdin: true });
  asked.future.onStdin = m => { if (m.header.msg_type === 'input_request') asked.future.sendInputReply({ value: 'Ann', status: 'ok' }, m.header); };
  said.input = find((await asked.done).seen, 'stream').text;

  await run(kernel, `
def opened(comm, message):
    @comm.on_msg
    def back(message):
        comm.send({}, buffers=[bytes(message['buffers'][0])[::-1]])
get_ipython().kernel.comm_manager.register_target('echo', opened)
`).done;
  const comm = kernel.createComm('echo');
  const got = new Promise(resolve => { comm.onMsg = m => resolve(Array.from(new Uint8Array(m.buffers[0].buffer || m.buffers[0], m.buffers[0].byteOffset || 0, m.buffers[0].byteLength))); });
  comm.open();
  comm.send({}, undefined, [new Uint8Array([3, 2, 1]).buffer]);
  said.comm = await got;

  const busy = run(kernel, 'print("in", flush=True)\nwhile True: pass');
  await new Promise(resolve => { const old = busy.future.onIOPub; busy.future.onIOPub = m => { old(m); if (m.header.msg_type === 'stream') resolve(); }; });
  await kernel.interrupt();
  said.interrupted = find((await busy.done).seen, 'error').ename;

  await run(kernel, 'x = 5').done;
  await kernel.restart();
  r = await run(kernel, 'x').done;
  said.restarted = find(r.seen, 'error').ename;

  await run(kernel, 'x = 5').done;
  await kernel.reconnect();
  r = await run(kernel, 'x').done;
  said.reconnected = find(r.seen, 'execute_result').data['text/plain'];

  const sessions = new SessionManager({ serverSettings: settings, kernelManager: manager });
  await sessions.ready;
  const session = await sessions.startNew({ path: 'a.ipynb', type: 'notebook', name: 'a', kernel: { name: 'python3' } });
  await session.setPath('b.ipynb');
  said.session = session.path === 'b.ipynb' && (await run(session.kernel, '1').done).reply.content.status === 'ok';
  await session.shutdown();

  const states = [];
  kernel.statusChanged.connect((_, s) => states.push(s));
  kernel.requestExecute({ code: 'import os; os._exit(1)' }).done.catch(() => {});
  while (!states.some(s => s.includes('restarting'))) await new Promise(resolve => setTimeout(resolve, 20));
  for (;;) {
    const model = await KernelAPI.getKernelModel(kernel.id, settings);
    if (model.execution_state === 'idle') break;
    await new Promise(resolve => setTimeout(resolve, 50));
  }
  r = await run(kernel, '1 + 1').done;
  said.autorestart = find(r.seen, 'execute_result').data['text/plain'] === '2';

  const id = kernel.id;
  await kernel.shutdown();
  said.gone = (await KernelAPI.getKernelModel(id, settings)) === undefined;
  console.log(JSON.stringify(said));
  process.exit(0);
})().catch(e => { console.error(e); console.log(JSON.stringify(said)); process.exit(1); });
