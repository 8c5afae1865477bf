"""The settings of language models: which models are used, how runs use them, and their budgets."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field, SecretStr

from bots.settings.validation import NO_SECRET, Dollars, Names, Tokens, WebUrl, lowercase
from core.domain.budget import Budget, Limit

PROVIDER_KEY_NAMES = {
    "anthropic": "ANTHROPIC_API_KEY",
    "claude": "ANTHROPIC_API_KEY",
    "openai": "OPENAI_API_KEY",
    "gpt": "OPENAI_API_KEY",
    "o3": "OPENAI_API_KEY",
    "o4": "OPENAI_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "groq": "GROQ_API_KEY",
    "mistral": "MISTRAL_API_KEY",
    "xai": "XAI_API_KEY",
}
"""Maps a provider, or the start of a model name, to the environment variable that litellm uses for the API key."""


def provider_key_name(model: str) -> str | None:
    """Returns the environment variable of the API key for the model's provider, or None if the provider is unknown."""
    start = model.lower().split("/", 1)[0]
    for prefix, name in PROVIDER_KEY_NAMES.items():
        if start == prefix or ("/" not in model and start.startswith(prefix)):
            return name
    return None


class ModelSettings(BaseModel):
    """Part of `bots.settings.Settings`."""

    model: str = ""
    fallback_models: Names = ()
    llm_base_url: WebUrl = ""
    llm_api_key: SecretStr = NO_SECRET
    dialect: Annotated[Literal["auto", "native", "xml", "react"], BeforeValidator(lowercase)] = (
        "auto"
    )
    max_xml_tool_calls: int = Field(default=0, ge=0)
    max_turns: int = Field(default=100, ge=1, le=10_000)
    tool_strategy: Annotated[Literal["parallel", "sequential"], BeforeValidator(lowercase)] = (
        "parallel"
    )
    execute_on_stream: bool = True
    stream: bool = True
    embedding_model: str = ""
    context_tokens: int | None = Field(default=None, ge=4_000)
    answer_tokens: int | None = Field(default=None, ge=1)

    price_input_per_million_usd: Dollars = None
    price_output_per_million_usd: Dollars = None
    budget_run_usd: Dollars = None
    budget_user_day_usd: Dollars = None
    budget_channel_day_usd: Dollars = None
    budget_workspace_day_usd: Dollars = None
    budget_run_tokens: Tokens = None
    budget_user_day_tokens: Tokens = None
    budget_channel_day_tokens: Tokens = None
    budget_workspace_day_tokens: Tokens = None

    @property
    def budget(self) -> Budget:
        """The limits on the cost and tokens of model calls."""
        return Budget(
            run=Limit(usd=self.budget_run_usd, tokens=self.budget_run_tokens),
            person_day=Limit(usd=self.budget_user_day_usd, tokens=self.budget_user_day_tokens),
            channel_day=Limit(
                usd=self.budget_channel_day_usd, tokens=self.budget_channel_day_tokens
            ),
            workspace_day=Limit(
                usd=self.budget_workspace_day_usd, tokens=self.budget_workspace_day_tokens
            ),
        )
