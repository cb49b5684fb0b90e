"""The server's side of a request to an app: what comes of its body, and what is sent."""

import asyncio
from typing import Any


class Wire:
    """Parts of a body, which come one by one, and what the app sends.

    ends     whether the last part is said to be the last; else nothing comes after it
    leaves   the client leaves after the last part
    seconds  how long each part takes to come
    """

    def __init__(
        self, *parts: bytes, ends: bool = True, leaves: bool = False, seconds: float = 0.0
    ) -> None:
        self.messages = [
            {"type": "http.request", "body": part, "more_body": True} for part in parts
        ]
        if leaves:
            self.messages.append({"type": "http.disconnect"})
        elif self.messages and ends:
            self.messages[-1]["more_body"] = False
        self.sent: list[dict[str, Any]] = []
        self._seconds = seconds

    async def receive(self) -> Any:
        await asyncio.sleep(self._seconds if self.messages else 3600)
        return self.messages.pop(0)

    async def send(self, message: Any) -> None:
        self.sent.append(message)

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    @property
    def is_ended(self) -> bool:
        return (
            bool(self.sent)
            and self.sent[-1]["type"] == "http.response.body"
            and not self.sent[-1].get("more_body", False)
        )
