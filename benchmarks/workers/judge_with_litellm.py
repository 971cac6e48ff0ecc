"""Ask a server by litellm alone: judge_with_litellm.py URL BODIES CONCURRENCY.

Each body of the JSON list BODIES is sent once more, under a semaphore; the first one warms up. Answers are read, not
understood.
"""

import os

os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MODE": "PRODUCTION"}

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import litellm
from timing import time_calls

url, bodies, concurrency = sys.argv[1], json.loads(Path(sys.argv[2]).read_text()), int(sys.argv[3])
litellm.suppress_debug_info = True


async def ask(body: dict[str, Any]) -> str:
    model = {"model": f"openai/{body['model']}", "api_base": url, "api_key": "none"}
    answer = await litellm.acompletion(**body | model, timeout=60, max_retries=0)
    return answer.choices[0].message.content


async def main() -> None:
    await ask(bodies[0])
    semaphore = asyncio.Semaphore(concurrency)

    async def ask_in_turn(body: dict[str, Any]) -> str:
        async with semaphore:
            return await ask(body)

    with time_calls():
        await asyncio.gather(*map(ask_in_turn, bodies[1:]))


asyncio.run(main())
