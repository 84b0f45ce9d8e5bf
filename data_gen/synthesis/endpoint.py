"""A chat completion of any OpenAI-compatible endpoint, with retries."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
from collections.abc import Sequence
from typing import Any

import httpx

from common.errors import InputError

MAX_BYTES = 1 << 20
"""Longest reply that is read."""
LONGEST_WAIT_S = 60.0
_RETRIED = frozenset([408, 409, 425, 429, 500, 502, 503, 504])
_REFUSED = frozenset([400, 401, 403, 404, 405, 422])


class NoReply(Exception):
    """No usable reply after all attempts; ``reason`` is a short name."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


@dataclasses.dataclass
class Endpoint:
    """Where and how to ask.

    Attributes:
        client: an open httpx client.
        address: base address, e.g. ``http://127.0.0.1:8000/v1``.
        model, temperature: as in the API.
        timeout_s: wall seconds for one try, all of the reply included.
        attempts: tries in all; between them at least ``wait_s`` seconds, doubled each time, or what Retry-After says.
        retried: tries that failed and were made again, by reason.
    """

    client: httpx.AsyncClient
    address: str
    model: str
    temperature: float = 1.0
    timeout_s: float = 120.0
    attempts: int = 5
    wait_s: float = 1.0
    key: str = ""
    retried: dict[str, int] = dataclasses.field(default_factory=dict)

    async def chat(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
        """Return the message of the first choice.

        Raises:
            NoReply: 429, 5xx, time-outs, broken connections or replies that are no chat completion, at every try.
            InputError: the endpoint refuses the request itself (wrong model, key, address).
        """
        body: dict[str, Any] = {"model": self.model, "messages": list(messages), "temperature": self.temperature}
        if tools:
            body["tools"] = list(tools)
        for attempt in range(self.attempts):
            try:
                async with asyncio.timeout(self.timeout_s):
                    return await self._try(body)
            except (TimeoutError, httpx.TimeoutException):
                failure = NoReply("endpoint_timeout", f"{self.timeout_s} s")
            except httpx.HTTPError as error:
                failure = NoReply("endpoint_unreachable", type(error).__name__)
            except _Again as error:
                failure = NoReply(error.reason, error.detail)
                if error.wait_s is not None and attempt + 1 < self.attempts:
                    self._count(failure)
                    await asyncio.sleep(min(error.wait_s, LONGEST_WAIT_S))
                    continue
            if attempt + 1 < self.attempts:
                self._count(failure)
                await asyncio.sleep(min(self.wait_s * 2**attempt * random.uniform(1, 1.5), LONGEST_WAIT_S))
        raise failure

    def _count(self, failure: NoReply) -> None:
        self.retried[failure.reason] = self.retried.get(failure.reason, 0) + 1

    async def _try(self, body: dict[str, Any]) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        url = self.address.rstrip("/") + "/chat/completions"
        async with self.client.stream("POST", url, json=body, headers=headers) as response:
            content = b""
            async for piece in response.aiter_bytes():
                content += piece
                if len(content) > MAX_BYTES:
                    raise _Again("reply_too_long", f"more than {MAX_BYTES} bytes")
        if response.status_code in _RETRIED:
            name = "endpoint_busy" if response.status_code == 429 else "endpoint_error"
            raise _Again(name, str(response.status_code), _seconds(response.headers.get("retry-after")))
        if response.status_code in _REFUSED:
            told = content[:200].decode("utf-8", "replace")
            raise InputError(f"{url}: {response.status_code} for model {self.model!r}: {told}")
        if response.status_code != 200:
            raise _Again("endpoint_error", str(response.status_code))
        try:
            message = json.loads(content)["choices"][0]["message"]
            if not isinstance(message, dict):
                raise TypeError("no message")
            json.dumps(message, ensure_ascii=False).encode()  # half a character cannot be sent back
        except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
            raise _Again("reply_not_readable", type(error).__name__) from None
        return message


class _Again(Exception):
    def __init__(self, reason: str, detail: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason, self.detail, self.wait_s = reason, detail, wait_s


def _seconds(text: str | None) -> float | None:
    """Seconds of a Retry-After header; None for a date or anything else."""
    try:
        seconds = float(text) if text else None
    except ValueError:
        return None
    return seconds if seconds is not None and 0 <= seconds < float("inf") else None
