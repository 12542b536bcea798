"""The ten tests of the control-plane contract, as its comprehensive suite is described: one client for
all of them, one request id, JSON's content type on every request, a step without a sandbox passes."""

import asyncio
import sys
import uuid

import httpx

SERVER = "http://127.0.0.1:8000"
SANDBOXES = f"{SERVER}/agent/sandboxes/sandboxes"
TMP = "/tmp"


class Suite:
    def __init__(self, client):
        self.client, self.box, self.results = client, None, []

    def post(self, path, **body):
        return self.client.post(f"{SANDBOXES}/{path}", json={"sandbox_id": self.box} | body)

    async def login(self):
        reply = await self.client.post(f"{SERVER}/api/v1/auth/login/swagger",
                                       params={"username": "sandbox_test", "password": "TestPass123!"})
        body = reply.json()
        token = body.get("access_token")
        if reply.status_code != 200 or not isinstance(token, str):
            return False
        self.client.headers["Authorization"] = f"{body['token_type']} {token}"
        return True

    async def create(self):
        reply = await self.client.post(f"{SANDBOXES}/create", json={"user_id": "test-user"})
        data = reply.json().get("data")
        if reply.status_code != 200 or not data:
            return False
        self.box = data["sandbox_id"]
        return True

    async def status(self):
        return (await self.client.get(f"{SANDBOXES}/{self.box}/status")).status_code == 200

    async def command(self):
        chain = "echo 'Hello from the sandbox' && pwd && whoami && python3 --version"
        return (await self.post("run-cmd", command=chain)).status_code == 200

    async def write(self):
        reply = await self.post("write-file", file_path=f"{TMP}/test_file.txt",
                                content="first line\nsecond line\n")
        return reply.status_code == 200

    async def read(self):
        return (await self.post("read-file", file_path=f"{TMP}/test_file.txt")).status_code == 200

    async def python(self):
        script = "print(sum(range(10)))\nprint('SUCCESS!')\n"
        wrote = await self.post("write-file", file_path=f"{TMP}/test_script.py", content=script)
        ran = await self.post("run-cmd", command=f"python3 {TMP}/test_script.py")
        return (wrote.status_code == ran.status_code == 200
                and "SUCCESS!" in ran.json()["data"]["output"])

    async def port(self):
        return (await self.post("expose-port", port=8080)).status_code == 200

    async def urls(self):
        return (await self.client.get(f"{SANDBOXES}/{self.box}/urls")).status_code == 200

    async def delete(self):
        return (await self.client.delete(f"{SANDBOXES}/{self.box}")).status_code in (200, 204)

    STEPS = (("Login", login), ("Create Sandbox", create), ("Get Status", status),
             ("Run Command", command), ("Write File", write), ("Read File", read),
             ("Python Execution", python), ("Expose Port", port), ("Get URLs", urls),
             ("Delete Sandbox", delete))

    async def run(self):
        for number, (name, step) in enumerate(self.STEPS, 1):
            passed = await step(self) if number <= 2 or self.box else True
            self.results.append(passed)
            print(f"{number:2} {'PASS' if passed else 'FAIL'} {name}")
        print(f"{sum(self.results)}/{len(self.results)} passed")
        return all(self.results)


async def main():
    headers = {"User-Agent": "SandboxTestSuite/1.0", "X-Request-ID": str(uuid.uuid4()),
               "Content-Type": "application/json"}
    async with httpx.AsyncClient(timeout=180.0, http2=False, headers=headers) as client:
        return await Suite(client).run()


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(main()) else 1)
