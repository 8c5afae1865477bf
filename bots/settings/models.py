"""The settings of language models: which models are used, how runs use them, and their budgets."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field, SecretStr

from bots.settings.validation import (
    NO_SECRET,
    BudgetDollars,
    BudgetTokens,
    Dollars,
    Names,
    ServiceUrl,
    lowercase,
    parse_json_object,
)
from core.domain.budget import Limit
from core.domain.model_options import ModelOptions

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
    model_first_seconds: float = Field(default=60.0, gt=0, le=3600, allow_inf_nan=False)
    model_fallback_seconds: float = Field(default=110.0, gt=0, le=3600, allow_inf_nan=False)
    model_deadline_seconds: float = Field(default=300.0, gt=0, le=3600, allow_inf_nan=False)
    llm_base_url: ServiceUrl = ""
    llm_api_key: SecretStr = NO_SECRET
    llm_api: Annotated[Literal["auto", "chat", "responses"], BeforeValidator(lowercase)] = "auto"
    dialect: Annotated[Literal["auto", "native", "xml", "react"], BeforeValidator(lowercase)] = "auto"
    max_xml_tool_calls: int = Field(default=0, ge=0)
    max_calls: int = Field(default=32, ge=0)
    max_turns: int = Field(default=100, ge=1, le=10_000)
    tool_strategy: Annotated[Literal["ordered", "parallel", "sequential"], BeforeValidator(lowercase)] = "ordered"
    execute_on_stream: bool = True
    stream: bool = True
    show_reasoning: bool = False
    embedding_model: str = ""
    model_options: Annotated[dict[str, ModelOptions], BeforeValidator(parse_json_object)] = {}
    context_tokens: int | None = Field(default=None, ge=4_000)
    answer_tokens: int | None = Field(default=None, ge=1)

    price_input_per_million_usd: Dollars = None
    price_output_per_million_usd: Dollars = None
    budget_run_usd: BudgetDollars = 2
    budget_user_day_usd: BudgetDollars = 20
    budget_app_day_usd: BudgetDollars = 5
    budget_channel_day_usd: BudgetDollars = None
    budget_workspace_day_usd: BudgetDollars = 100
    budget_run_tokens: BudgetTokens = 1_000_000
    budget_user_day_tokens: BudgetTokens = None
    budget_app_day_tokens: BudgetTokens = None
    budget_channel_day_tokens: BudgetTokens = None
    budget_workspace_day_tokens: BudgetTokens = None

    @property
    def models(self) -> tuple[str, ...]:
        """The model and its fallbacks, without duplicates. Empty if no model is chosen."""
        return tuple(dict.fromkeys(filter(None, (self.model, *self.fallback_models))))

    def budget_limit(self, name: str) -> Limit:
        """Returns the limit of the settings `budget_<name>_usd` and `budget_<name>_tokens`.

        If only one of the two is set, the other has no default."""
        fields = {"usd": f"budget_{name}_usd", "tokens": f"budget_{name}_tokens"}
        is_default = self.model_fields_set.isdisjoint(fields.values())
        return Limit(
            **{
                unit: getattr(self, field)
                for unit, field in fields.items()
                if is_default or field in self.model_fields_set
            }
        )
