#!/bin/sh
# What a user's own server code brings: a script that starts it and returns.
exec python3 server.py >>"$SHARED_DIR/$SERVER_LOG" 2>&1
