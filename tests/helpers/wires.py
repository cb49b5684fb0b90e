"""The server's side of a request to an ASGI app: it gives the body, and records the answer."""

import asyncio
from typing import Any


class Wire:
    """A request whose body comes in parts, and the messages that the app sends.

    ends     whether the last part is marked as the last; if not, the app waits for more
    leaves   whether the client disconnects after the last part
    seconds  the time before each part, in seconds
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
