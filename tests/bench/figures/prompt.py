"""How many tokens each request has at least, how much of it a provider's cache serves, and what twenty turns cost."""

from tests.bench import prompt
from tests.bench.figure import Figure, note


async def prompt_tokens_without_browser() -> float:
    """The system prompt and the tools of the default agent, as cl100k counts them."""
    note(f"prompt_tokens: {prompt.prompt_tokens(has_browser=True)} with the browser")
    return prompt.prompt_tokens(has_browser=False)


async def prefix_share() -> float:
    """Percent of the bytes of 50 turns that stood at the same place in the request before."""
    return prompt.prefix_share(await prompt.thread_requests(50)) * 100


async def bill_20_turns_usd() -> float:
    return prompt.bill_usd(await prompt.thread_requests(20))


PROMPT = Figure(name="prompt_tokens", unit="tokens", bound=3_800, measure=prompt_tokens_without_browser)
PREFIX = Figure(name="prefix_share", unit="percent", bound=95, is_minimum=True, measure=prefix_share)
BILL = Figure(name="bill_20_turns_usd", unit="USD", bound=0.12, measure=bill_20_turns_usd)
