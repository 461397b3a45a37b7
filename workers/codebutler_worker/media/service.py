"""The OpenAI-compatible service for speech and pictures: ``audio/transcriptions`` and ``images/generations``.

Source: OpenAI API reference, Audio and Images; Groq, faster-whisper and LocalAI servers speak the same.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from codebutler.config.schema import OpenAISection
from codebutler.domain.errors import CodeButlerError
from codebutler_worker.internet.remote import Remote, RemoteError

TRANSCRIBE_S = 120.0
IMAGE_S = 240.0
MAX_AUDIO_BYTES = 25 * 2**20
MAX_ANSWER_BYTES = 32 * 2**20
MAX_PROMPT_CHARS = 32_000
DETAIL_CHARS = 200
NEEDS_KEY = "set openai.apiKey (or openai.baseUrl of a service that needs none)"


class MediaError(CodeButlerError):
    """The service for speech and pictures did not do it; the message is one line that says what to do."""


@dataclass(frozen=True, slots=True)
class MediaService:
    """Holds no connection: each call makes its own. ``env`` names the proxies, which a worker's own scrubbed
    environment does not."""

    settings: OpenAISection
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def available(self) -> bool:
        """Whether somebody has set the service up."""
        return bool(self.settings.api_key) or self.settings.base_url != OpenAISection().base_url

    async def transcribe(self, filename: str, content: bytes) -> str:
        """What is spoken in the recording ("" for silence). Raises MediaError."""
        self._require("to transcribe voice messages, ")
        if len(content) > MAX_AUDIO_BYTES:
            raise MediaError(
                f"the recording is longer than the service takes ({MAX_AUDIO_BYTES // 2**20} MB)"
            )
        form = {"model": self.settings.transcription_model, "response_format": "json"}
        if self.settings.language:
            form["language"] = self.settings.language
        files = {"file": (filename, content)}
        answer = await self._post("audio/transcriptions", TRANSCRIBE_S, data=form, files=files)
        text = answer.get("text")
        if not isinstance(text, str):
            raise MediaError("the transcription service sent no text")
        return " ".join(text.split())

    async def draw(self, prompt: str) -> bytes:
        """A picture of what the prompt says, as the service encodes it (PNG as a rule). Raises MediaError."""
        self._require("to create images, ")
        if len(prompt) > MAX_PROMPT_CHARS:
            raise MediaError(f"the description is longer than {MAX_PROMPT_CHARS} characters: shorten it")
        body: dict[str, Any] = {"model": self.settings.image_model, "prompt": prompt, "n": 1}
        if self.settings.image_model.startswith("dall-e"):
            # Newer models answer so by themselves and refuse the option.
            body["response_format"] = "b64_json"
        answer = await self._post("images/generations", IMAGE_S, json=body)
        try:
            # Only inline data: an address would have us fetch whatever the service names.
            return base64.b64decode(answer["data"][0]["b64_json"], validate=True)
        except (KeyError, IndexError, TypeError, ValueError, binascii.Error):
            raise MediaError("the image service sent no picture (b64_json)") from None

    def _require(self, purpose: str) -> None:
        if not self.available:
            raise MediaError(f"{purpose}{NEEDS_KEY}")

    async def _post(self, path: str, timeout_s: float, **content: Any) -> dict[str, Any]:
        settings = self.settings
        remote = Remote(
            "the openai service",
            "openai.baseUrl",
            settings.base_url,
            settings.api_key,
            self.env,
            MAX_ANSWER_BYTES,
        )
        try:
            return _answer(*await remote.post(path, timeout_s, **content))
        except RemoteError as error:
            raise MediaError(str(error)) from None


def _answer(status: int, body: bytes) -> dict[str, Any]:
    try:
        told = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        told = None
    if status == 200 and isinstance(told, dict):
        return told
    if status in (401, 403):
        raise MediaError(f"the openai service refuses the key (status {status}): check openai.apiKey")
    if status == 429:
        raise MediaError("the openai service is at its limit: try later, or check its quota")
    raise MediaError(f"the openai service refused (status {status}){_detail(told)}")


def _detail(told: object) -> str:
    error = told.get("error") if isinstance(told, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return f": {' '.join(message.split())[:DETAIL_CHARS]}" if isinstance(message, str) else ""
