"""A web application that runs in a sandbox, reached from here."""

from cove import Sandbox

APP = """
import http.server, json

class App(http.server.BaseHTTPRequestHandler):
    visits = 0

    def do_GET(self):
        App.visits += 1
        body = json.dumps({"path": self.path, "visits": App.visits}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

http.server.ThreadingHTTPServer(("0.0.0.0", 3000), App).serve_forever()
"""


def main() -> None:
    with Sandbox.create() as sandbox:
        sandbox.files.write("app.py", APP)
        app = sandbox.commands.start("python3 app.py", tag="app")
        # Its first answer is to this question.
        sandbox.ports.wait(3000)
        print("for a browser:", sandbox.ports.url(3000))
        for path in ("/hello", "/again"):
            print(sandbox.ports.get(3000, path).json())
        app.terminate()
        app.close()


if __name__ == "__main__":
    main()
