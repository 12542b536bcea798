"""rest_app.py - /health as the documents' program has it, for the benchmark."""
from fastapi import FastAPI

app = FastAPI()


@app.get("/health")
async def health_check():
    return {"status": "ok"}
