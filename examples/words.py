"""A small executor: it counts the words of a text, line by line.

    runlane executor examples.words:app
    runlane submit count-words --params '{"text": "to be or not to be"}' --wait

Parameters: `text`, and optionally `pauseMs`, how long to rest after each line, so that one can watch.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter

from streams.executor import Executor, Result, RunContext

app = Executor()


@app.run("count-words")
async def count_words(context: RunContext) -> Result:
    """Count the words; a text without any makes the run fail."""
    lines = context.params["text"].splitlines()
    pause_s = context.params.get("pauseMs", 0) / 1000
    counts: Counter[str] = Counter()
    for number, line in enumerate(lines, start=1):
        counts.update(re.findall(r"\w+", line.lower()))
        await context.progress(f"line {number} of {len(lines)}")
        await asyncio.sleep(pause_s)
    if not counts:
        raise ValueError("the text has no words")
    await context.log(f"{len(counts)} different words")
    return Result({"different": len(counts), "most": dict(counts.most_common(3))}, total_rows=counts.total())
