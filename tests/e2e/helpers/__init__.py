"""What the end-to-end tests share: starting a guest (guest.py), talking to it without the SDK
(wire.py), and small things about processes and waiting (proc.py)."""
