"""status.py - the contract's status call as its original serves it: FastAPI on uvicorn, the token checked by
PyJWT, the login and the sandbox's row read from SQLite. No ORM, no middleware: the least that does the work.

usage: python status.py PORT DATABASE SECRET"""
import sqlite3
import sys

import jwt
import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Request
from pydantic import BaseModel

PORT, DATABASE, SECRET = int(sys.argv[1]), sys.argv[2], sys.argv[3]
SESSION, BOX = "5a0c2c1e-7a43-4c7a-9b0e-0d2f5b9f1a11", "29ef1923-20e4-4e41-9d76-1fffafbaaaeb"

app = FastAPI()
db = sqlite3.connect(DATABASE, check_same_thread=False)
db.execute("PRAGMA journal_mode=WAL")
db.executescript(f"""
    CREATE TABLE sessions (id TEXT PRIMARY KEY, user INTEGER);
    CREATE TABLE sandboxes (id TEXT PRIMARY KEY, provider_sandbox_id TEXT, user INTEGER, status TEXT);
    INSERT INTO sessions VALUES ('{SESSION}', 7);
    INSERT INTO sandboxes VALUES ('{BOX}', 'i4isp1t4pd05ulp7qgdop', 7, 'running');""")


class Status(BaseModel):
    success: bool
    sandbox_id: str
    status: str
    provider_sandbox_id: str
    message: str | None = None


class Reply(BaseModel):
    code: int = 200
    msg: str = "Request success"
    data: Status


async def who(request: Request):
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    try:
        claims = jwt.decode(token, SECRET, algorithms=["HS256"])
    except jwt.PyJWTError:
        raise HTTPException(401, "Token 无效") from None
    row = db.execute("SELECT user FROM sessions WHERE id = ?", (claims["session_uuid"],)).fetchone()
    if not row or scheme.lower() != "bearer":
        raise HTTPException(401, "Token 已失效")
    return row[0]


@app.get("/agent/sandboxes/sandboxes/{sandbox_id}/status")
async def status(sandbox_id: str, user: int = Depends(who)) -> Reply:
    row = db.execute("SELECT id, status, provider_sandbox_id FROM sandboxes WHERE id = ? AND user = ?",
                     (sandbox_id, user)).fetchone()
    if not row:
        raise HTTPException(404, f"Sandbox {sandbox_id} not found")
    return Reply(data=Status(success=True, sandbox_id=row[0], status=row[1], provider_sandbox_id=row[2]))


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="error", access_log=False)
