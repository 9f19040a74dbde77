"""Writes the weights of a model anew with another chat template."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

# A conversation as ChatML, with tools as models of the Hermes and Qwen families know them.
TEMPLATE = """{%- if tools %}<|im_start|>system
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>{% for tool in tools %}
{{ tool | tojson }}{% endfor %}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
{% endif %}{%- for message in messages %}
{%- if message.role == "tool" %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% else %}<|im_start|>{{ message.role }}
{% if message.content %}{{ message.content }}{% endif %}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

# Sizes of GGUF's scalar types, by their number.
SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9
KEY = b"tokenizer.chat_template"
ALIGNMENT = 32

Read = Callable[[int], bytes]


def with_template(source: Path, target: Path, template: str = TEMPLATE) -> None:
    """Copies a GGUF file; only its chat template is another."""
    with source.open("rb") as file:
        head = file.read(24)
        _, _, tensors, pairs = struct.unpack("<4sIQQ", head)
        written = bytearray(head)
        for _ in range(pairs):
            key, value = _pair(file.read)
            if key == KEY:
                text = template.encode()
                value = struct.pack("<IQ", STRING, len(text)) + text
            written += struct.pack("<Q", len(key)) + key + value
        for _ in range(tensors):
            name = _string(file.read)
            dimensions = file.read(4)
            rest = file.read(8 * int.from_bytes(dimensions, "little") + 4 + 8)
            written += name + dimensions + rest
        # The data of tensors are placed from here on.
        file.seek(-file.tell() % ALIGNMENT, 1)
        written += bytes(-len(written) % ALIGNMENT)
        with target.open("wb") as copy:
            copy.write(written)
            shutil.copyfileobj(file, copy)


def _pair(read: Read) -> tuple[bytes, bytes]:
    """A key, and its value as it is written."""
    key = _string(read)[8:]
    kind = read(4)
    return key, kind + _value(read, int.from_bytes(kind, "little"))


def _value(read: Read, kind: int) -> bytes:
    if kind == STRING:
        return _string(read)
    if kind == ARRAY:
        head = read(12)
        element, count = struct.unpack("<IQ", head)
        if element in SCALARS:
            return head + read(SCALARS[element] * count)
        return head + b"".join(_value(read, element) for _ in range(count))
    return read(SCALARS[kind])


def _string(read: Read) -> bytes:
    length = read(8)
    return length + read(int.from_bytes(length, "little"))
